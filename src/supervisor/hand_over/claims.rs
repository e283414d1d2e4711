//! Descriptors that came through execve.

use super::{Document, Number, Why};
use crate::sys::{children, program};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;

/// The handed descriptors that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Claims {
    left: BTreeSet<Number>,
    missed: Option<Number>,
}

impl Claims {
    /// # Errors
    /// [`Why::Closed`]: one of them is not there.
    pub(crate) fn of(document: &Document) -> Result<Self, Why> {
        let numbers = &document.back.numbers;
        match numbers.iter().find(|number| !program::is_open(number.0)) {
            Some(closed) => Err(Why::Closed(*closed)),
            None => Ok(Self { left: numbers.clone(), missed: None }),
        }
    }

    /// Takes one; it is close-on-exec from now on. None: it is not there, or was taken before, which is remembered.
    pub(crate) fn take(&mut self, number: Number) -> Option<OwnedFd> {
        let taken = self.left.take(&number).and_then(|n| children::inherited(n.0).ok());
        if taken.is_none() {
            self.missed = self.missed.or(Some(number));
        }
        taken
    }

    /// Takes all of these.
    pub(crate) fn take_all(&mut self, numbers: &[Number]) -> Vec<OwnedFd> {
        numbers.iter().filter_map(|number| self.take(*number)).collect()
    }

    /// The first that could not be taken.
    pub(crate) fn missed(&self) -> Option<Number> {
        self.missed
    }

    /// Closes what nobody took: it belongs to something that only another version knows of.
    pub(crate) fn close_rest(self) {
        for number in self.left {
            drop(children::inherited(number.0));
        }
    }
}
