/** A systemd user unit that runs the daemon of this installation. */

/** The unit; `node` and `script` are the absolute paths that it starts. */
export function systemdUnit(node: string, script: string): string {
  return `[Unit]
Description=iwarpd, emulated RoCE and iWARP devices
Documentation=man:iwarpd(1)

[Service]
Type=notify
ExecStart=${quoted(node)} ${quoted(script)} start
Restart=on-failure
LimitNOFILE=65536

[Install]
WantedBy=default.target
`;
}

/** One argument of ExecStart, see systemd.service(5): specifiers and variables stay as they are. */
function quoted(path: string): string {
  const escaped = path.replaceAll('\\', '\\\\').replaceAll('"', '\\"');
  return `"${escaped.replaceAll('%', '%%').replaceAll('$', '$$$$')}"`;
}
