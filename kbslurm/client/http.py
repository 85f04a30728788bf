"""The service over HTTP: for the bot, and for commands on a laptop. Every refusal raises the same error as on the
server.

One `Client` may be shared by threads. `acting_for` lets the hosts' client act for one person, as the bot does.
"""

from __future__ import annotations

from kbslurm.client.bot_calls import BotCalls
from kbslurm.client.evaluating import Evaluating
from kbslurm.client.feed import Feed
from kbslurm.client.host_archive_calls import HostArchiveCalls
from kbslurm.client.host_board_calls import HostBoardCalls
from kbslurm.client.host_budget_calls import HostBudgetCalls
from kbslurm.client.host_calls import HostCalls
from kbslurm.client.host_comparing_calls import HostComparingCalls
from kbslurm.client.host_course_calls import HostCourseCalls
from kbslurm.client.host_grade_calls import HostGradeCalls
from kbslurm.client.host_measuring_calls import HostMeasuringCalls
from kbslurm.client.host_place_calls import HostPlaceCalls
from kbslurm.client.host_question_calls import HostQuestionCalls
from kbslurm.client.host_script_calls import HostScriptCalls
from kbslurm.client.host_time_calls import HostTimeCalls
from kbslurm.client.host_user_calls import HostUserCalls
from kbslurm.client.host_warm_calls import HostWarmCalls


class Client(
    Evaluating,
    BotCalls,
    HostCalls,
    HostArchiveCalls,
    HostBoardCalls,
    HostBudgetCalls,
    HostComparingCalls,
    HostCourseCalls,
    HostGradeCalls,
    HostMeasuringCalls,
    HostQuestionCalls,
    HostScriptCalls,
    HostTimeCalls,
    HostUserCalls,
    HostPlaceCalls,
    HostWarmCalls,
    Feed,
):
    """One method per call; JSON becomes values. Connections are kept open until `close`."""

    def acting_for(self, whom: str, *, roles: str | None = None) -> Client:
        """The same client, acting for this person: `discord:ID`, `github:ID` or `person:ID`. Shares its connections.

        `roles` are the person's Discord roles, as `GUILD:ROLE,ROLE`; only the bot is trusted with them.
        """
        return Client(
            self._url, admin=self._admin, timeout_s=self._timeout_s, _shared=self._http, _acting=whom, _roles=roles
        )
