"""Pictures of boards for pages that link to them."""
