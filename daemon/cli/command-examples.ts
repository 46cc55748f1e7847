/** An example of every command, for `--help` and the manual page. */
import type { Command } from 'commander';

/** A command line that works as it stands, or together with the one that it names. */
export interface CommandExample {
  readonly title: string;
  readonly line: string;
}

/** Command lines by title, by the words of the command without `iwarpd`. */
const EXAMPLES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  start: {
    'Run a daemon with two devices': 'iwarpd start --device a=127.0.0.2 --device b=127.0.0.3',
    'Run a daemon in the background, until `iwarpd stop`': 'iwarpd start --detach',
    'Serve the web page and metrics, too': 'iwarpd start --http 127.0.0.1:7470',
  },
  stop: { 'Stop the daemon of a CI job': 'iwarpd stop --instance job7' },
  list: { 'List the daemons of this user': 'iwarpd list' },
  status: { 'Show the daemon of a CI job': 'iwarpd status --instance job7' },
  devices: { 'List the devices as JSON': 'iwarpd devices --json' },
  page: { 'Pass the token to another program': 'iwarpd page --token' },
  reset: {
    'Fail if a test left something open, and start the next one clean':
      'iwarpd reset --expect-clean',
  },
  'fault add': {
    'Fail every third memory registration':
      'iwarpd fault add errno --verb regMR --errno ENOMEM --every 3',
    'Reset one connection after 4 KiB': 'iwarpd fault add reset --after-bytes 4096 --once',
    'Lose every twentieth packet of RoCE devices, on average':
      'iwarpd fault add drop --probability 0.05',
  },
  'rail down': {
    'Take a rail down for seven seconds': 'iwarpd rail down roce1 --for 7s',
    'Lose its packets without an event': 'iwarpd rail down roce1 --silent',
  },
  'rail up': { 'Use it again': 'iwarpd rail up roce1' },
  'rail play': { 'Let a rail flap a hundred times': 'iwarpd rail play flap.txt --times 100' },
  'fault list': { 'Show how often each fault has triggered': 'iwarpd fault list' },
  'fault remove': { 'Remove every fault': 'iwarpd fault remove all' },
  wait: {
    'Wait until the daemon of a CI job is ready': 'iwarpd wait --instance job7 --timeout 30',
  },
  top: { 'Print one sample of ten seconds as JSON': 'iwarpd top --interval 10 --count 1 --json' },
  explain: {
    'Show why a program got EINVAL': 'iwarpd explain --program ibv_rc_pingpong',
    'Watch what is refused from now on': 'iwarpd explain --follow',
  },
  conform: {
    'Serve testers on the devices of the daemon': 'iwarpd conform --serve',
    'Test them, over RoCE': 'iwarpd conform --peer 127.0.0.1 --over roce',
  },
  run: {
    'List the devices that a program sees': 'iwarpd run --fresh -- ibv_devices',
    'Run tests in CI: fail if they leave objects open, and keep what explains a failure':
      'iwarpd run --fresh --expect-clean --capture rdma.pcapng --log-file rdma.log -- make check',
    'Run a program while every twentieth packet is lost':
      "iwarpd run --fresh --fault 'drop --probability 0.05' -- ./program",
    'Run the server of a test on the running daemon': 'iwarpd run -- ib_write_bw -R',
    'Print the reason of each refused verb': 'iwarpd run --fresh --explain -- ibv_rc_pingpong',
  },
  'setup-preload': { 'Use another compiler': 'CC=clang iwarpd setup-preload' },
  env: { 'Set the environment in this shell': 'eval "$(iwarpd env)"' },
  rping: {
    'Wait for a client': 'iwarpd rping -s',
    'Ping it ten times and check the data': 'iwarpd rping -c -a 127.0.0.1 -C 10 -V',
  },
  'nfs serve': {
    'Serve a directory to this host, for reading': 'iwarpd nfs serve ./tree',
    'Let every host that reaches this one write to it':
      'iwarpd nfs serve --host 0.0.0.0 --writable ./tree',
  },
  'nfs ls': { 'List the root of a server, with sizes': 'iwarpd nfs ls -l 127.0.0.1:/' },
  'nfs cat': { 'Print a file': 'iwarpd nfs cat 127.0.0.1:/notes.txt' },
  'nfs put': { 'Copy a file to a directory': 'iwarpd nfs put notes.txt 127.0.0.1:/' },
  bench: { 'Run one measurement': 'iwarpd bench --only write-64k' },
  capture: {
    'Record all traffic': 'iwarpd capture -w traffic.pcapng',
    'Print the traffic of one device': 'iwarpd capture --device a -w - | iwarpd decode -',
  },
  trace: {
    'Watch work requests and completions': 'iwarpd trace --only wqe,cqe',
    'Watch the packets of a RoCE device': 'iwarpd trace --only packet --device roce0',
  },
  decode: { 'Print a recording': 'iwarpd decode traffic.pcapng' },
  doctor: {
    'Check everything, and a daemon by name': 'iwarpd doctor --instance job7',
    'Check what a program needs of `run`': 'iwarpd doctor ib_send_bw',
  },
  completion: { 'Load completion for this shell': 'source <(iwarpd completion bash)' },
  manual: {
    'Read the manual page': 'iwarpd manual | man -l -',
    'Install a systemd user unit':
      'iwarpd manual --systemd-unit > ~/.config/systemd/user/iwarpd.service',
  },
  version: { 'Print the version': 'iwarpd version' },
};

/** The examples of a command; none for one that only has subcommands. */
export function examplesOf(words: readonly string[]): readonly CommandExample[] {
  const lines = EXAMPLES[words.slice(1).join(' ')] ?? {};
  return Object.entries(lines).map(([title, line]) => ({ title, line }));
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
