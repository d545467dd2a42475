"""GitLab's API as far as a comment needs it: a comment is a note of a merge request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from agent_eval_action.ci.api_client import ApiClient, ApiError, ApiErrorKind, ApiModel, Clock
from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.comment import Account, Comment

# A line that begins with a slash is a quick action, done with the rights of the token's owner: /merge, /close, …
_QUICK_ACTION: Final = re.compile(r"(?m)^([^\S\n]*)(?=/[A-Za-z])")
_APART: Final = "\N{ZERO WIDTH SPACE}"


class MergeRequest(ApiModel):
    """A merge request; ``sha`` is its head."""

    state: str = ""
    sha: str | None = None


@dataclass(frozen=True)
class GitLabNotes:
    """GitLab's API with one token. Every method raises ApiError and nothing else."""

    api: ApiClient

    @classmethod
    def connect(cls, url: str, token: str, ca_bundle: Path | None = None, clock: Clock | None = None) -> GitLabNotes:
        """The API at ``url`` (CI_API_V4_URL), with a project, group or personal access token."""
        return cls(ApiClient("GitLab", url, {"PRIVATE-TOKEN": token}, ca_bundle, clock or Clock()))

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    @property
    def clock(self) -> Clock:
        """The time it runs by."""
        return self.api.clock

    def viewer(self) -> Account:
        """Whose token this is; of a project's token a user of its own."""
        return self.api.read(Account, "GET", f"{self.api.url}/user", "say whose token this is")

    def is_open_at(self, target: ChangeRequest, head_sha: str) -> bool:
        """Whether the merge request is open and has this head."""
        found = self.api.read(MergeRequest, "GET", self._url(target), f"read the merge request {target}")
        return found.state == "opened" and found.sha == head_sha

    def comments(self, target: ChangeRequest) -> list[Comment]:
        """All notes, oldest first."""
        order = {"sort": "asc", "order_by": "created_at"}
        return list(self.api.pages(Comment, self._notes_url(target), f"list the notes of {target}", order))

    def comment(self, target: ChangeRequest, number: int) -> Comment:
        """One note, as it is now."""
        return self.api.read(Comment, "GET", f"{self._notes_url(target)}/{number}", f"read note {number} of {target}")

    def create_comment(self, target: ChangeRequest, body: str) -> Comment:
        """Write a note. Never tried again: it may have been written, so look first."""
        content = {"body": without_quick_actions(body)}
        return self.api.read(Comment, "POST", self._notes_url(target), f"comment on {target}", once=True, json=content)

    def update_comment(self, target: ChangeRequest, number: int, body: str) -> Comment:
        """Replace a note's text. Never tried again: another job may have written meanwhile, so read first."""
        url, what = f"{self._notes_url(target)}/{number}", f"edit note {number} of {target}"
        return self.api.read(Comment, "PUT", url, what, once=True, json={"body": without_quick_actions(body)})

    def delete_comment(self, target: ChangeRequest, number: int) -> None:
        """Remove a note; one that is not there any more is no error."""
        self.api.delete(f"{self._notes_url(target)}/{number}", f"delete note {number} of {target}")

    def advice(self, error: ApiError) -> str:
        """What to do about a note that was refused."""
        match error.kind:
            case ApiErrorKind.TOKEN | ApiErrorKind.PERMISSION:
                return "GITLAB_TOKEN has to be an access token with the scope api and the role Reporter or higher"
            case ApiErrorKind.MISSING:
                return "There is no such merge request, or GITLAB_TOKEN may not see the project"
            case _:
                return ""

    def _url(self, target: ChangeRequest) -> str:
        return f"{self.api.url}/projects/{quote(target.repository, safe='')}/merge_requests/{target.number}"

    def _notes_url(self, target: ChangeRequest) -> str:
        return f"{self._url(target)}/notes"


def without_quick_actions(text: str) -> str:
    """The text with every quick action in it broken by a character that shows nothing."""
    return _QUICK_ACTION.sub(lambda found: f"{found[1]}{_APART}", text)
