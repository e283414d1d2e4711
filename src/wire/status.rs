//! `v1.Status`: how the API says that something was refused.

use serde_json::{Value, json};

/// A failure as `v1.Status`. `reason` is a word of `metav1.StatusReason`: `NotFound`, `BadRequest`, `Conflict`, ...
#[must_use]
pub fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

/// The end of an exec session as the error channel of `v5.channel.k8s.io` carries it: success for exit code 0, else
/// `NonZeroExitCode` with the code as its cause.
#[must_use]
pub fn exit(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

/// The exit code that [`exit`] put into a status; none when the session failed for another reason.
#[must_use]
pub fn exit_code(status: &Value) -> Option<i32> {
    if status.get("status")?.as_str()? == "Success" {
        return Some(0);
    }
    let causes = status.pointer("/details/causes")?.as_array()?;
    let cause = causes.iter().find(|c| c.get("reason").and_then(Value::as_str) == Some("ExitCode"))?;
    cause.get("message")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

    #[test]
    fn statuses_decode_as_the_v1_type() {
        let status: Status = serde_json::from_value(failure(404, "NotFound", "pods \"x\" not found")).expect("decodes");
        assert_eq!((status.code, status.reason.as_deref()), (Some(404), Some("NotFound")));
    }

    #[test]
    fn exit_codes_come_back() {
        for code in [0, 1, 137, 255] {
            assert_eq!(exit_code(&exit(code)), Some(code));
        }
        assert_eq!(exit_code(&failure(500, "InternalError", "x")), None);
        assert_eq!(exit_code(&json!({})), None);
        assert_eq!(exit_code(&json!([1])), None);
    }
}
