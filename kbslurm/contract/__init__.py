"""The API's requests and answers: one model each, by subject, for server, client and documents."""
