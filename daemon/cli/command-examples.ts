/** An example of every command, for `--help` and the manual page. */
import type { Command } from 'commander';

/** A command line that works as it stands, or together with the one that it names. */
export interface CommandExample {
  readonly title: string;
  readonly line: string;
}

const example = (title: string, line: string): CommandExample => ({ title, line });

/** By the words of the command, without `iwarpd`. */
const EXAMPLES: Readonly<Record<string, readonly CommandExample[]>> = {
  start: [
    example(
      'Run a daemon with two devices',
      'iwarpd start --device a=127.0.0.2 --device b=127.0.0.3',
    ),
    example('Run a daemon in the background, until `iwarpd stop`', 'iwarpd start --detach'),
    example('Serve the web page and metrics, too', 'iwarpd start --http 127.0.0.1:7470'),
  ],
  stop: [example('Stop the daemon of a CI job', 'iwarpd stop --instance job7')],
  list: [example('List the daemons of this user', 'iwarpd list')],
  status: [example('Show the daemon of a CI job', 'iwarpd status --instance job7')],
  devices: [example('List the devices as JSON', 'iwarpd devices --json')],
  page: [example('Pass the token to another program', 'iwarpd page --token')],
  reset: [
    example(
      'Fail if a test left something open, and start the next one clean',
      'iwarpd reset --expect-clean',
    ),
  ],
  'fault add': [
    example(
      'Fail every third memory registration',
      'iwarpd fault add errno --verb regMR --errno ENOMEM --every 3',
    ),
    example('Reset one connection after 4 KiB', 'iwarpd fault add reset --after-bytes 4096 --once'),
    example(
      'Lose every twentieth packet of RoCE devices, on average',
      'iwarpd fault add drop --probability 0.05',
    ),
  ],
  'fault list': [example('Show how often each fault has triggered', 'iwarpd fault list')],
  'fault remove': [example('Remove every fault', 'iwarpd fault remove all')],
  wait: [
    example(
      'Wait until the daemon of a CI job is ready',
      'iwarpd wait --instance job7 --timeout 30',
    ),
  ],
  top: [
    example('Print one sample of ten seconds as JSON', 'iwarpd top --interval 10 --count 1 --json'),
  ],
  explain: [
    example('Show why a program got EINVAL', 'iwarpd explain --program ibv_rc_pingpong'),
    example('Watch what is refused from now on', 'iwarpd explain --follow'),
  ],
  run: [
    example('List the devices that a program sees', 'iwarpd run --fresh -- ibv_devices'),
    example(
      'Run tests in CI: fail if they leave objects open, and keep what explains a failure',
      'iwarpd run --fresh --expect-clean --capture rdma.pcapng --log-file rdma.log -- make check',
    ),
    example(
      'Run a program while every twentieth packet is lost',
      "iwarpd run --fresh --fault 'drop --probability 0.05' -- ./program",
    ),
    example('Run the server of a test on the running daemon', 'iwarpd run -- ib_write_bw -R'),
    example(
      'Print the reason of each refused verb',
      'iwarpd run --fresh --explain -- ibv_rc_pingpong',
    ),
  ],
  'setup-preload': [example('Use another compiler', 'CC=clang iwarpd setup-preload')],
  env: [example('Set the environment in this shell', 'eval "$(iwarpd env)"')],
  rping: [
    example('Wait for a client', 'iwarpd rping -s'),
    example('Ping it ten times and check the data', 'iwarpd rping -c -a 127.0.0.1 -C 10 -V'),
  ],
  'nfs serve': [
    example('Serve a directory to this host, for reading', 'iwarpd nfs serve ./tree'),
    example(
      'Let every host that reaches this one write to it',
      'iwarpd nfs serve --host 0.0.0.0 --writable ./tree',
    ),
  ],
  'nfs ls': [example('List the root of a server, with sizes', 'iwarpd nfs ls -l 127.0.0.1:/')],
  'nfs cat': [example('Print a file', 'iwarpd nfs cat 127.0.0.1:/notes.txt')],
  'nfs put': [example('Copy a file to a directory', 'iwarpd nfs put notes.txt 127.0.0.1:/')],
  bench: [example('Run one measurement', 'iwarpd bench --only write-64k')],
  capture: [
    example('Record all traffic', 'iwarpd capture -w traffic.pcapng'),
    example('Print the traffic of one device', 'iwarpd capture --device a -w - | iwarpd decode -'),
  ],
  trace: [
    example('Watch work requests and completions', 'iwarpd trace --only wqe,cqe'),
    example('Watch the packets of a RoCE device', 'iwarpd trace --only packet --device roce0'),
  ],
  decode: [example('Print a recording', 'iwarpd decode traffic.pcapng')],
  doctor: [example('Check everything, and a daemon by name', 'iwarpd doctor --instance job7')],
  completion: [example('Load completion for this shell', 'source <(iwarpd completion bash)')],
  manual: [
    example('Read the manual page', 'iwarpd manual | man -l -'),
    example(
      'Install a systemd user unit',
      'iwarpd manual --systemd-unit > ~/.config/systemd/user/iwarpd.service',
    ),
  ],
  version: [example('Print the version', 'iwarpd version')],
};

/** The examples of a command; none for one that only has subcommands. */
export function examplesOf(words: readonly string[]): readonly CommandExample[] {
  return EXAMPLES[words.slice(1).join(' ')] ?? [];
}

/** Appends the examples to the help of `command` and its subcommands. */
export function addExamples(command: Command, above: readonly string[] = []): void {
  const words = [...above, command.name()];
  const examples = examplesOf(words);
  if (examples.length > 0) {
    const lines = examples.flatMap(({ title, line }) => [`  ${title}:`, `    ${line}`]);
    const head = examples.length === 1 ? 'Example:' : 'Examples:';
    command.addHelpText('after', `\n${[head, ...lines].join('\n')}`);
  }
  for (const each of command.commands) addExamples(each, words);
}
