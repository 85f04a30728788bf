"""What the people who run the service type: up, status, doctor, sites, images, the database."""
