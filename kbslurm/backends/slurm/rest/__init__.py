"""slurmrestd with a JWT as the way to a site's scheduler, in place of its commands."""
