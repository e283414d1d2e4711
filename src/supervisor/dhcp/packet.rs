//! DHCP messages as bytes (RFC 2131 and 2132). Pure.

use std::net::Ipv4Addr;

/// `op`, `htype`, ... up to the magic cookie.
const HEADER: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Relay agents may drop what is shorter than a BOOTP message.
const MIN_LENGTH: usize = 300;

/// Option codes.
mod option {
    pub(super) const SUBNET_MASK: u8 = 1;
    pub(super) const ROUTER: u8 = 3;
    pub(super) const DNS: u8 = 6;
    pub(super) const HOST_NAME: u8 = 12;
    pub(super) const DOMAIN: u8 = 15;
    pub(super) const REQUESTED_ADDRESS: u8 = 50;
    pub(super) const LEASE_TIME: u8 = 51;
    pub(super) const MESSAGE_TYPE: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const PARAMETERS: u8 = 55;
    pub(super) const RENEWAL_TIME: u8 = 58;
    pub(super) const REBINDING_TIME: u8 = 59;
    pub(super) const CLIENT_ID: u8 = 61;
    pub(super) const END: u8 = 255;
}

/// What a client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Say {
    /// Who has an address for me?
    Discover,
    /// I take this offer of that server.
    Select {
        /// The offered address.
        address: Ipv4Addr,
        /// Who offered it.
        server: Ipv4Addr,
    },
    /// I have this address and want to keep it.
    Renew {
        /// The address.
        address: Ipv4Addr,
    },
}

/// Who says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    /// Ethernet address.
    pub(crate) mac: [u8; 6],
    /// Host name, for the server's list.
    pub(crate) hostname: String,
}

/// A message of a client, to be sent as UDP from port 68 to port 67.
pub(crate) fn write(client: &Client, xid: u32, secs: u16, say: Say) -> Vec<u8> {
    // Request from an Ethernet station.
    let mut out = vec![1, 1, 6, 0];
    out.extend_from_slice(&xid.to_be_bytes());
    out.extend_from_slice(&secs.to_be_bytes());
    // Answers to a client without an address are to be broadcast: it cannot take another yet.
    let (flags, own) = match say {
        Say::Discover | Say::Select { .. } => (0x8000_u16, Ipv4Addr::UNSPECIFIED),
        Say::Renew { address } => (0, address),
    };
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&own.octets());
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&client.mac);
    out.resize(HEADER, 0);
    out.extend_from_slice(&COOKIE);
    let kind = if say == Say::Discover { 1 } else { 3 };
    put(&mut out, option::MESSAGE_TYPE, &[kind]);
    let mut id = vec![1];
    id.extend_from_slice(&client.mac);
    put(&mut out, option::CLIENT_ID, &id);
    if let Say::Select { address, server } = say {
        put(&mut out, option::REQUESTED_ADDRESS, &address.octets());
        put(&mut out, option::SERVER, &server.octets());
    }
    let name = client.hostname.as_bytes();
    if !name.is_empty() {
        put(&mut out, option::HOST_NAME, name.get(..64).unwrap_or(name));
    }
    let wanted = [
        option::SUBNET_MASK,
        option::ROUTER,
        option::DNS,
        option::DOMAIN,
        option::LEASE_TIME,
        option::RENEWAL_TIME,
        option::REBINDING_TIME,
    ];
    put(&mut out, option::PARAMETERS, &wanted);
    out.push(option::END);
    out.resize(out.len().max(MIN_LENGTH), 0);
    out
}

fn put(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    if let Ok(length) = u8::try_from(value.len()) {
        out.push(code);
        out.push(length);
        out.extend_from_slice(value);
    }
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    /// An offer.
    Offer(Terms),
    /// The address is the client's.
    Ack(Terms),
    /// It is not, or no more.
    Nak,
}

/// What comes with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix_len: u8,
    pub(crate) server: Ipv4Addr,
    pub(crate) gateway: Option<Ipv4Addr>,
    pub(crate) dns: Vec<Ipv4Addr>,
    pub(crate) domain: Option<String>,
    /// Seconds; `u32::MAX` is for ever.
    pub(crate) lease: u32,
    /// Seconds until renewal, if the server says.
    pub(crate) renew: Option<u32>,
    /// Seconds until any server is asked, if the server says.
    pub(crate) rebind: Option<u32>,
}

/// Reads a server's message to this client; `None` for anything else.
pub(crate) fn read(bytes: &[u8], client: &Client, xid: u32) -> Option<Heard> {
    let for_us = bytes.first() == Some(&2)
        && bytes.get(4..8)? == xid.to_be_bytes()
        && bytes.get(28..34)? == client.mac
        && bytes.get(HEADER..HEADER.checked_add(4)?)? == COOKIE;
    if !for_us {
        return None;
    }
    let options = bytes.get(HEADER.checked_add(4)?..)?;
    let find = |code| find(options, code);
    match find(option::MESSAGE_TYPE)? {
        [2] => terms(bytes, find).map(Heard::Offer),
        [5] => terms(bytes, find).map(Heard::Ack),
        [6] => Some(Heard::Nak),
        _ => None,
    }
}

fn terms<'a>(bytes: &[u8], find: impl Fn(u8) -> Option<&'a [u8]>) -> Option<Terms> {
    let address = addresses(bytes.get(16..20)?).next()?;
    let seconds = |code| Some(u32::from_be_bytes(find(code)?.try_into().ok()?));
    let server = addresses(find(option::SERVER)?).next()?;
    let usable = |a: &Ipv4Addr| !a.is_unspecified() && !a.is_broadcast() && !a.is_multicast() && !a.is_loopback();
    if !usable(&address) {
        return None;
    }
    let mask = find(option::SUBNET_MASK).and_then(|m| addresses(m).next());
    let prefix_len = match mask.map(u32::from) {
        // A mask with holes is none; without one the address stands for itself.
        Some(mask) if mask.leading_ones().saturating_add(mask.trailing_zeros()) == 32 => mask.leading_ones(),
        _ => 32,
    };
    let domain = find(option::DOMAIN).and_then(|d| std::str::from_utf8(d).ok()).filter(|d| is_domain(d));
    Some(Terms {
        address,
        prefix_len: u8::try_from(prefix_len).ok()?,
        server,
        gateway: find(option::ROUTER).and_then(|r| addresses(r).next()).filter(usable),
        dns: find(option::DNS).map(|d| addresses(d).filter(usable).take(3).collect()).unwrap_or_default(),
        domain: domain.map(str::to_owned),
        lease: seconds(option::LEASE_TIME)?.max(60),
        renew: seconds(option::RENEWAL_TIME),
        rebind: seconds(option::REBINDING_TIME),
    })
}

/// It goes into a file that programs read.
fn is_domain(text: &str) -> bool {
    !text.is_empty() && text.len() < 254 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
}

fn addresses(bytes: &[u8]) -> impl Iterator<Item = Ipv4Addr> {
    bytes.as_chunks::<4>().0.iter().map(|octets| Ipv4Addr::from(*octets))
}

/// The value of an option; the first, should it come twice.
fn find(options: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = options;
    loop {
        let (code, after) = rest.split_first()?;
        match *code {
            0 => rest = after,
            option::END => return None,
            code => {
                let (length, after) = after.split_first()?;
                let (value, after) = after.split_at_checked(usize::from(*length))?;
                if code == wanted {
                    return Some(value);
                }
                rest = after;
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn client() -> Client {
        Client { mac: [2, 0, 0, 0, 0, 1], hostname: "node".to_owned() }
    }

    /// A server's message.
    pub(crate) fn answer(xid: u32, kind: u8, options: &[(u8, &[u8])]) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        out[..4].copy_from_slice(&[2, 1, 6, 0]);
        out[4..8].copy_from_slice(&xid.to_be_bytes());
        out[16..20].copy_from_slice(&[10, 0, 2, 15]);
        out[28..34].copy_from_slice(&client().mac);
        out.extend_from_slice(&COOKIE);
        put(&mut out, 53, &[kind]);
        for (code, value) in options {
            put(&mut out, *code, value);
        }
        out.push(255);
        out
    }

    pub(crate) const USUAL: &[(u8, &[u8])] = &[
        (54, &[10, 0, 2, 2]),
        (1, &[255, 255, 255, 0]),
        (3, &[10, 0, 2, 2]),
        (6, &[10, 0, 2, 3, 0, 0, 0, 0]),
        (51, &[0, 1, 81, 128]),
    ];

    #[test]
    fn an_offer_is_read() {
        let Some(Heard::Offer(terms)) = read(&answer(7, 2, USUAL), &client(), 7) else { panic!() };
        assert_eq!((terms.address, terms.prefix_len), (Ipv4Addr::new(10, 0, 2, 15), 24));
        assert_eq!((terms.gateway, terms.lease), (Some(Ipv4Addr::new(10, 0, 2, 2)), 86_400));
        assert_eq!(terms.dns, [Ipv4Addr::new(10, 0, 2, 3)]);
        assert_eq!(read(&answer(7, 6, &[]), &client(), 7), Some(Heard::Nak));
    }

    #[test]
    fn what_is_not_for_this_client_is_not_heard() {
        assert_eq!(read(&answer(8, 2, USUAL), &client(), 7), None);
        assert_eq!(read(&answer(7, 9, USUAL), &client(), 7), None);
        assert_eq!(read(&answer(7, 2, &[]), &client(), 7), None, "no server, no lease time");
        let mut other = answer(7, 2, USUAL);
        other[28] = 9;
        assert_eq!(read(&other, &client(), 7), None);
        let mut own = write(&client(), 7, 0, Say::Discover);
        assert_eq!(read(&own, &client(), 7), None);
        own.truncate(100);
        assert_eq!(read(&own, &client(), 7), None);
        let evil = [USUAL, &[(15, b"a\nnameserver 6.6.6.6".as_slice())]].concat();
        let Some(Heard::Offer(terms)) = read(&answer(7, 2, &evil), &client(), 7) else { panic!() };
        assert_eq!(terms.domain, None);
        let holes: &[(u8, &[u8])] = &[(54, &[10, 0, 2, 2]), (1, &[255, 0, 255, 0]), (51, &[0, 0, 0, 1])];
        let Some(Heard::Offer(terms)) = read(&answer(7, 2, holes), &client(), 7) else { panic!() };
        assert_eq!((terms.prefix_len, terms.lease), (32, 60));
    }

    #[test]
    fn what_is_said_has_its_options() {
        let select = Say::Select { address: Ipv4Addr::new(10, 0, 2, 15), server: Ipv4Addr::new(10, 0, 2, 2) };
        let bytes = write(&client(), 0x0102_0304, 5, select);
        assert_eq!(bytes.len(), MIN_LENGTH);
        assert_eq!(&bytes[4..8], [1, 2, 3, 4]);
        let options = &bytes[HEADER + 4..];
        assert_eq!(find(options, 53), Some(&[3][..]));
        assert_eq!(find(options, 50), Some(&[10, 0, 2, 15][..]));
        assert_eq!(find(options, 54), Some(&[10, 0, 2, 2][..]));
        assert_eq!(find(options, 12), Some(&b"node"[..]));
        let renew = write(&client(), 1, 0, Say::Renew { address: Ipv4Addr::new(10, 0, 2, 15) });
        assert_eq!(&renew[12..16], [10, 0, 2, 15]);
        assert_eq!(find(&renew[HEADER + 4..], 54), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in prop::collection::vec(any::<u8>(), 0..600), dress in any::<bool>()) {
            if dress {
                let real = answer(7, 2, &[]);
                let n = bytes.len().min(real.len());
                bytes[..n].copy_from_slice(&real[..n]);
            }
            let _ = read(&bytes, &client(), 7);
        }
    }
}
