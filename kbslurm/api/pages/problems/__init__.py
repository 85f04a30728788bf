"""Problems: their page, their published code, and the page to submit from."""
