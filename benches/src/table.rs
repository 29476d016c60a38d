//! Tables as Markdown.

use std::fmt;

use crate::measure::Median;

pub struct Table {
    pub title: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<(String, Vec<String>)>,
}

impl Table {
    /// Medians, and how many times that of the first each is.
    pub fn of_medians(title: impl Into<String>, medians: &[Median]) -> Self {
        let first = medians.first().map_or(1.0, |median| median.1);
        let row =
            |&(name, ns): &Median| (name.to_owned(), vec![format!("{ns:.2}"), format!("{:.2}", ns / first)]);
        Self {
            title: title.into(),
            columns: vec!["ns an ID", "ratio"],
            rows: medians.iter().map(row).collect(),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "### {}\n\n| | {} |", self.title, self.columns.join(" | "))?;
        writeln!(f, "|---|{}", "---|".repeat(self.columns.len()))?;
        for (name, cells) in &self.rows {
            writeln!(f, "| {name} | {} |", cells.join(" | "))?;
        }
        writeln!(f)
    }
}
