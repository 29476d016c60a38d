//! What is known of names from pages before: a name keeps its layout when the slot is lost.

use std::collections::HashMap;

use cosid_id::{Error, Header, Layout, Page};

/// The layouts of names, for one pool. A page has room for some names only, and is replaced only at a loss: there are few.
#[derive(Default)]
pub(super) struct Known {
    /// The pool and its layout. A pool of the same name with another layout is another pool.
    pool: Option<(String, Layout)>,
    layouts: HashMap<String, Layout>,
}

impl Known {
    /// Keeps the layouts of a page that ends. Those of another pool are forgotten.
    pub(super) fn learn(&mut self, page: &Page) {
        let header = page.header();
        if !self.is_of(header) {
            *self = Self { pool: Some((header.pool.clone(), header.layout)), layouts: HashMap::new() };
        }
        for cell in page.cells() {
            // A layout that this version does not know can't be asked of it.
            if let Ok(layout) = page.layout_of(cell.cell) {
                self.layouts.insert(cell.name, layout);
            }
        }
    }

    /// The layout that a name had on a page before.
    pub(super) fn layout(&self, header: &Header, name: &str) -> Option<Layout> {
        self.layouts.get(name).copied().filter(|_| self.is_of(header))
    }

    /// # Errors
    /// [`Error::OtherLayout`].
    pub(super) fn check(&self, header: &Header, name: &str, asked: Layout) -> Result<(), Error> {
        match self.layout(header, name) {
            Some(has) if has != asked => Err(Error::OtherLayout { name: name.to_owned(), has, asked }),
            _ => Ok(()),
        }
    }

    fn is_of(&self, header: &Header) -> bool {
        self.pool.as_ref().is_some_and(|(pool, layout)| *pool == header.pool && *layout == header.layout)
    }
}
