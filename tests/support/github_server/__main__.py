"""Run the server as a process: prints its URL as the first line and serves until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import ssl
from pathlib import Path

from support.github_server.server import GitHubServer


async def _serve(port: int, certificate: Path | None) -> None:
    tls = None
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    server, url = await GitHubServer().start(port=port, tls=tls)
    print(url, flush=True)  # noqa: T201 - whoever started the process reads its address there
    async with server:
        await server.serve_forever()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="github_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certificate", type=Path, default=None, help="PEM of a key and its certificate: serve https")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments.port, arguments.certificate))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
