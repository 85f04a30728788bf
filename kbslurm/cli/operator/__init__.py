"""The operators' commands: up, status, doctor, sites, images, the database."""
