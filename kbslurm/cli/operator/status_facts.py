"""What `kbslurm status` shows: what the service says of itself, and, on its own machine, what the clusters say."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.status import Status, look
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import in_use
from kbslurm.errors import BackendTrouble, KbslurmError, NotAccepting

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.domain.site import Fleet


ASK_EVERY_S = 60.0


def looked(config: Config) -> Status:
    """Read everything once. What can't be reached is a trouble, not an exception; but whoever may not ask a service is
    told so, and not that it is unhealthy."""
    from kbslurm import wiring

    found = Status()
    if in_use() is not None:
        try:
            with host() as hosts:
                return as_status(hosts.service_status())
        except (BackendTrouble, NotAccepting) as error:
            found.database = found.daemon = "unknown: the service doesn't answer"
            found.troubles.append(error.message + (f" ({error.hint})" if error.hint else ""))
            return found
    try:
        with wiring.opened_store(config, migrated=False) as store:
            look(config, store, found)
    except KbslurmError as error:
        found.troubles.append(error.message + (f" ({error.hint})" if error.hint else ""))
    return found


def as_status(told: Status | Mapping[str, Any]) -> Status:
    """The service's answer, from a version that may tell more."""
    if isinstance(told, Status):
        return told
    known = {one.name for one in dataclasses.fields(Status)}
    return Status(**{name: value for name, value in told.items() if name in known})


@dataclasses.dataclass(kw_only=True)
class Fleets:
    """What Slurm last said about the nodes: it is asked once a minute at most, however often that is shown."""

    known: Status | None = None
    asked_at: float = 0.0

    def show(self, config: Config, found: Status) -> None:
        """Add it to what is shown."""
        if self.known is None or time.monotonic() - self.asked_at >= ASK_EVERY_S:
            self.known, self.asked_at = Status(), time.monotonic()
            look_at_fleets(config, self.known)
        found.fleet += self.known.fleet
        found.troubles += self.known.troubles


def look_at_fleets(config: Config, found: Status) -> None:
    """Ask each site's Slurm for its nodes."""
    from kbslurm import wiring

    try:
        sites = wiring.sites(config)
    except KbslurmError:
        return  # the check of the backends has reported it
    for site in sites:
        try:
            fleet = wiring.fleet(config, site)
        except KbslurmError as error:
            found.troubles.append(error.message)
            continue
        found.fleet.append(
            {
                "site": site.name,
                "reader": fleet.reader,
                "reader_why": fleet.reader_why,
                "gpus": {kind: dict(zip(("used", "usable"), fleet.gpus(kind), strict=True)) for kind in _kinds(fleet)},
                "nodes": len(fleet.nodes),
                "unusable": [{"node": n.name, "state": n.state, "why": n.reason} for n in fleet.nodes if not n.usable],
                "reservations": [dict(printing.jsonable(one)) for one in fleet.reservations],
            }
        )


def _kinds(fleet: Fleet) -> list[str]:
    return sorted({kind for node in fleet.nodes for kind in node.gpus})
