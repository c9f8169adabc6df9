"""Tables: columns of numbers and of categories, with missing values."""
