//! Interns values, so that equal values are stored only once.

use std::collections::HashMap;
use std::hash::Hash;

/// A set of distinct values whose indexes never change.
#[derive(Debug, Clone)]
pub struct Interner<T> {
    items: Vec<T>,
    places: HashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { items: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// Returns the index of `item`, adding it if it is new.
    pub(crate) fn intern(&mut self, item: T) -> u32 {
        if let Some(place) = self.places.get(&item) {
            return *place;
        }
        let place = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        self.places.insert(item.clone(), place);
        self.items.push(item);
        place
    }
}

impl<T> Interner<T> {
    /// Returns the value at index `place`.
    ///
    /// # Panics
    ///
    /// Panics if the index doesn't exist.
    #[must_use]
    pub fn get(&self, place: u32) -> &T {
        &self.items[place as usize]
    }

    /// Yields all values in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}
