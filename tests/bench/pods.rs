//! The pods that are measured.

/// A pod whose container marks `file` and stays, with limits, its own network and the default seccomp profile.
pub(crate) fn manifest(name: &str, file: &str) -> String {
    format!(
        r#"apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  securityContext:
    seccompProfile: {{ type: RuntimeDefault }}
  volumes:
    - name: bench
      hostPath: {{ path: /var/lib/armlet/bench }}
  containers:
    - name: main
      image: localhost/busybox:trixie
      command: ["/bench/stopwatch", "stay", "/bench/{file}"]
      volumeMounts:
        - {{ name: bench, mountPath: /bench }}
      resources:
        requests: {{ cpu: 1m, memory: 1Mi }}
        limits: {{ cpu: 500m, memory: 64Mi }}
"#
    )
}
