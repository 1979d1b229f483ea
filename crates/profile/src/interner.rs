//! Equal things kept once.

use std::collections::HashMap;
use std::hash::Hash;

/// Equal things kept once, by number.
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
    /// The number of `item`, which is kept if it is new.
    pub(crate) fn put(&mut self, item: T) -> u32 {
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
    /// What has this number.
    ///
    /// # Panics
    /// The number is not one of this interner.
    #[must_use]
    pub fn get(&self, place: u32) -> &T {
        &self.items[place as usize]
    }

    /// All, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}
