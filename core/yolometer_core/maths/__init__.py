"""Pure mathematics, one method a file; formulas in docs/maths.md."""
