//! The name that a user may have meant.
//!
//! # Boundary
//! Compares words; the caller lists the names that exist.
//!
//! # Why
//! A far name is worse than none, since users try it first: at most a third of the letters may differ.

/// The nearest of `names` to a written one, if it is near enough to be meant.
pub fn nearest(wanted: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let lower = wanted.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(1);
    let far = |name: String| (edits(&lower, &name.to_lowercase()), name);
    let near = names.into_iter().map(far).filter(|(edits, _)| *edits <= limit);
    near.min().map(|(_, name)| name)
}

/// Letters to insert, delete, change, or swap with their neighbour.
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (line, letter) in from.iter().enumerate() {
        let mut row = vec![line + 1];
        for (column, other) in to.iter().enumerate() {
            let above = &rows[line];
            let mut least = above[column] + usize::from(letter != other);
            least = least.min(above[column + 1] + 1).min(row[column] + 1);
            if line > 0 && column > 0 && *letter == to[column - 1] && from[line - 1] == *other {
                least = least.min(rows[line - 1][column - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        let found =
            |wanted: &str, names: &[&str]| nearest(wanted, names.iter().map(ToString::to_string));
        assert_eq!(found("phtoos", &["notes", "photos"]).as_deref(), Some("photos"));
        assert_eq!(found("Photos", &["notes", "photos"]).as_deref(), Some("photos"));
        assert_eq!(found("music", &["notes", "photos"]), None);
        assert_eq!(found("a", &[]), None);
        assert_eq!((edits("kitten", "sitting"), edits("ab", "ba"), edits("", "abc")), (3, 1, 3));
    }
}
