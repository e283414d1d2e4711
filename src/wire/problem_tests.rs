//! How the problems of a manifest are told: all of them at once, each once, in the order of the lines, in the words of
//! the file.

use super::{NodeIdentity, parse};
use crate::wire::problem::Severity;

/// The problems of a file on node `edge1`, without the file's name.
fn problems(text: &str) -> Vec<String> {
    let parsed = parse(text.as_bytes(), "", &NodeIdentity::new("Edge1"));
    let refused = parsed.problems.iter().any(|problem| problem.severity == Severity::Error);
    assert_eq!(parsed.pods.is_empty(), refused, "{text}");
    parsed.problems.iter().map(ToString::to_string).collect()
}

/// A fault of the text is one problem among the others, wherever it is, and what it leaves without a value is not
/// missing as well.
#[test]
fn a_fault_of_the_text_hides_nothing() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: !mine web
  labels: {a: b, a: c}
  ~: x
spec:
  restartPolicy: Sometimes
  terminationGracePeriodSeconds: .inf
  hostnam: .nan
  containers:
  - <<: [1]
    name: a_b
    livenessProbe: {tcpSocket: {port: .nan}}
    securityContext: {seccompProfile: {type: !!int x}}
    image: i
    image: j
";
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let name = format!(":13: spec.containers[0].name: Invalid value: \"a_b\": {label}");
    let expect = [
        ":4: YAML: tag !mine is not known here",
        ":5: key \"a\" is given twice",
        ":6: YAML: a key must not be null",
        ":8: spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ":9: YAML: \".inf\" is not a finite number",
        ":10: YAML: \".nan\" is not a finite number",
        ":10: spec.hostnam: unknown field, did you mean \"hostname\"?",
        ":12: YAML: `<<` needs an object or a list of objects",
        &name,
        ":14: YAML: \".nan\" is not a finite number",
        ":15: YAML: \"x\" does not fit tag tag:yaml.org,2002:!int",
        ":17: key \"image\" is given twice",
    ];
    assert_eq!(problems(text), expect);
    // The text breaks off: what was wrong before is told with it.
    let broken = problems("apiVersion: v1\nkind: Pod\nkind: Pod\nspec: [\n");
    assert!(broken.len() == 2 && broken[0] == ":3: key \"kind\" is given twice", "{broken:?}");
}

#[test]
fn json_is_told_alike() {
    let text = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n\"metadata\": {\"name\": web},\n\"spec\": {\"hostPID\": true,\n\
                \"containers\": [{\"name\": \"a\", \"name\": \"b\",\n\"image\": \"i\"},]}}";
    let expect = [
        ":2: JSON: \"web\" is not a value",
        ":3: spec.hostPID: \"true\" is not supported by this version of armlet, only false",
        ":4: key \"name\" is given twice",
        ":5: JSON: expected a value",
    ];
    assert_eq!(problems(text), expect);
}

/// A fault refuses its whole document, a list of pods too, and none of the others.
#[test]
fn a_fault_refuses_its_document() {
    let pod = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}]}}}}"
        )
    };
    let list = format!("apiVersion: v1\nkind: List\nkind: List\nitems:\n- {}\n- {}\n", pod("a"), pod("b"));
    let parsed = parse(format!("{}\n---\n{list}", pod("c")).as_bytes(), "f", &NodeIdentity::new("n"));
    assert_eq!(
        parsed.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["f:5: key \"kind\" is given twice"]
    );
    assert_eq!(parsed.pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["c-n"]);
}

fn with(name: &str, resources: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: c\n    image: i\n    resources: {resources}\n\
         metadata: {{name: {name}}}\n"
    )
}

/// What a request takes over from its limit is told once, at the limit; what is written twice, twice.
#[test]
fn a_wrong_limit_is_told_once() {
    let quantity = "not a quantity: expected a number with an optional suffix n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, \
                    Pi, Ei or an exponent";
    let of = |place: &str, value: &str| format!(":7: spec.containers[0].resources.{place}: Invalid value: {value}");
    let bad = |place: &str| of(place, &format!("\"12Q!\": {quantity}"));
    let table = [
        ("{limits: {memory: 12Q!}}", vec![bad("limits[memory]")]),
        ("{limits: {memory: 12Q!}, requests: {cpu: 1}}", vec![bad("limits[memory]")]),
        ("{limits: {memory: 12Q!}, requests: {memory: 12Q!}}", vec![bad("limits[memory]"), bad("requests[memory]")]),
        ("{limits: {memory: [1]}}", vec![of("limits[memory]", "a list: must be a quantity")]),
        (
            "{limits: {hugepages-3: 2, cpu: 1}}",
            vec![of("limits[hugepages-3]", "\"3\": must be a page size: a power of two such as 2Mi")],
        ),
    ];
    for (resources, expect) in table {
        assert_eq!(problems(&with("web", resources)), expect, "{resources}");
    }
}

/// People look for what they wrote: the node's name behind it is named where it counts.
#[test]
fn a_name_is_told_as_it_is_written() {
    let of = |name: &str| problems(&with(name, "{}"));
    assert_eq!(of("web-"), Vec::<String>::new(), "with the node's name behind it this is one");
    let form = of("foo_bar");
    assert!(
        form.len() == 1 && form[0].starts_with(":8: metadata.name: Invalid value: \"foo_bar\": a lowercase"),
        "{form:?}"
    );
    let long = "a".repeat(248);
    let told = of(&long);
    let expect = format!(
        ":8: metadata.name: Invalid value: \"{long}\": with \"-edge1\" behind it, it must be no more than 253 bytes"
    );
    assert_eq!(told[0], expect);
    let folder = ":8: metadata.name: Too long: with \"-edge1\" behind it, namespace and UID it may not be more than 253 \
                  bytes: they name the log folder";
    assert_eq!(told[1..], [folder]);
}
