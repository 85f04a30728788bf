"""What the API takes and answers: one model for each answer, by subject, for server, client and documents."""
