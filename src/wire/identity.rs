//! The UID of a static pod: the same file gives the same pod after a reboot or an upgrade, a changed one another pod.
//!
//! What is hashed is the document as it was written, before types and defaults: its values with sorted keys. So
//! comments, blank space, the order of keys and the choice of YAML or JSON do not matter, and neither does what a later
//! version of armlet fills in. Where the document stands in its file does not matter either: putting another before it
//! restarts nothing. (Two documents of one file that describe the same pod are refused, so they cannot collide.)

use super::tree::{Data, Node};

/// The recipe of the hash. A changed recipe needs another version, and restarts every static pod on upgrade.
const RECIPE: &str = "armlet static pod 1";

/// 32 hexadecimal digits from the node, the file and the document.
pub(crate) fn static_uid(node_name: &str, file: &str, document: &Node) -> String {
    let mut hash = Fnv128::new();
    for part in [RECIPE, node_name, file] {
        hash.write(part.as_bytes());
        hash.write(&[0]);
    }
    feed(document, &mut hash);
    format!("{:032x}", hash.0)
}

/// Feeds a value in a form that is the same for equal values: a letter for the kind, lengths before contents.
fn feed(node: &Node, hash: &mut Fnv128) {
    match &node.data {
        // A document with something broken in it is refused: nothing gets its UID.
        Data::Null | Data::Broken => hash.write(b"z"),
        Data::Bool(value) => hash.write(if *value { b"t" } else { b"f" }),
        Data::Number(number) => {
            hash.write(b"n");
            hash.text(&number.to_string());
        }
        Data::Text(text) => {
            hash.write(b"s");
            hash.text(text);
        }
        Data::List(items) => {
            hash.write(b"l");
            hash.length(items.len());
            items.iter().for_each(|n| feed(n, hash));
        }
        Data::Map(entries) => {
            hash.write(b"m");
            hash.length(entries.len());
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            for entry in sorted {
                hash.text(&entry.key);
                feed(&entry.value, hash);
            }
        }
    }
}

/// FNV-1a of 128 bits (draft-eastlake-fnv), the hash that upstream uses for this too. Not meant against an attacker:
/// who can write the manifest folder owns the node.
struct Fnv128(u128);

impl Fnv128 {
    const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn length(&mut self, length: usize) {
        self.write(&(length as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.write(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tree::Budget;

    fn uid(node: &str, file: &str, text: &str) -> String {
        let reading = crate::wire::yaml::read(text, &mut Budget::new(1 << 20)).expect("not empty");
        static_uid(node, file, &reading.tree.expect("syntax"))
    }

    #[test]
    fn fnv_is_fnv() {
        let mut hash = Fnv128::new();
        hash.write(b"foobar");
        assert_eq!(hash.0, 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn only_what_is_said_matters() {
        let plain = uid("n", "/m/a.yaml", "a: 1\nb: [x, {c: d}]\n");
        for same in
            ["b: [x, {c: d}]\na: 1\n", "# hi\na:   1\nb:\n- x\n- c: d\n", "{\"b\": [\"x\", {\"c\": \"d\"}], \"a\": 1}"]
        {
            assert_eq!(uid("n", "/m/a.yaml", same), plain, "{same}");
        }
        for other in ["a: '1'\nb: [x, {c: d}]\n", "a: 1\nb: [{c: d}, x]\n", "a: 1\nb: [x, {c: d}]\ne: ~\n"] {
            assert_ne!(uid("n", "/m/a.yaml", other), plain, "{other}");
        }
        assert_ne!(uid("n2", "/m/a.yaml", "a: 1\nb: [x, {c: d}]\n"), plain);
        assert_ne!(uid("n", "/m/b.yaml", "a: 1\nb: [x, {c: d}]\n"), plain);
    }

    #[test]
    fn the_recipe_does_not_drift() {
        // This value is on people's disks: if it changes, the recipe needs another version.
        assert_eq!(uid("edge1", "/etc/armlet/manifests/web.yaml", "kind: Pod\n"), "acd323ebb95efb1e342283087876a50f");
    }
}
