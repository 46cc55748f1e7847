import { describe, expect, it } from 'vitest';
import { VERSION } from '#daemon/main/version';
import { runCommand } from '../support/cli-process.ts';

/** Invalid command lines, and the pattern that the one-line error must match. */
const INVALID: readonly (readonly [line: string, named: RegExp])[] = [
  ['', /missing command; see `iwarpd --help`/],
  ['frobnicate', /unknown command 'frobnicate'/],
  ['statsu', /Did you mean status/],
  ['--frobnicate', /unknown option '--frobnicate'/],
  ['status --frobnicate', /'--frobnicate'.*iwarpd status --help/],
  [
    'status extra',
    /too many arguments for 'status': expected 0, got 1; see `iwarpd status --help`/,
  ],
  ['start --device', /argument missing/],
  [
    'start --device =127.0.0.1',
    /bad device name '': use .* letters, digits, or any of \. _ -; see/,
  ],
  ['start --instance a/b', /--instance: must be 1 to 32 letters, digits, or any of \. _ -; see/],
  ['start --socket=', /--socket: must be a path; see/],
  ['start --device a=nowhere', /--device: device a: 'nowhere' is not an IP address/],
  ['start --device a=127.0.0.300', /'127.0.0.300'/],
  ['start --device a=127.0.0.2 --device a=127.0.0.3', /two devices are called a/],
  [
    'start --device a=127.0.0.2 --device b=127.0.0.2',
    /two iWARP devices have the address 127.0.0.2/,
  ],
  [
    'start --device a=roce:127.0.0.2 --device b=roce:127.0.0.2',
    /two RoCE devices have the address 127.0.0.2/,
  ],
  ['start --device a=roce:127.0.0.2 --device a=127.0.0.2', /two devices are called a/],
  ['start --device a=foo:127.0.0.2', /no kind of device is called 'foo:'; there are iwarp:, roce:/],
  ['start --device a=sctp:', /no address after 'sctp:'; write a=sctp:ADDRESS; see/],
  ['start --device a=sctp', /needs addresses; write a=sctp:ADDRESS; see/],
  ['start --device a=roce:', /no address after 'roce:'; write a=roce to serve all addresses/],
  ['start --no-crc --device a=roce', /wire options require an iWARP device; see `iwarpd start/],
  ['run --device a=roce:nowhere -- true', /device a: 'nowhere' is not an IP address/],
  ['start --log-level loud', /--log-level: must be .*info/],
  ['start --mpa-revision 3', /1 or 2/],
  ['start --fpdu-size huge', /emss, large or/],
  ['start --fpdu-size 12', /from 128 to/],
  ['start --memory-tier magic', /must be shared, process_vm or agent/],
  ['start --config /nonexistent/iwarpd.json', /\/nonexistent\/iwarpd.json/],
  ['rping', /missing role: -s \(server\) or -c \(client\)/],
  ['rping -s -c -a 127.0.0.1', /missing role: -s \(server\) or -c \(client\)/],
  ['rping -c', /-a ADDRESS/],
  ['rping -c -a 127.0.0.1 -p 0', /-p 0 is for the server/],
  ['rping -c -a 127.0.0.1 -p 65536', /from 0 to 65535/],
  ['rping -c -a 127.0.0.1 -p http', /from 0 to 65535/],
  ['rping -c -a 127.0.0.1 -S 22', /from 23 to 65536/],
  ['rping -c -a 127.0.0.1 -S 65537', /from 23 to 65536/],
  ['rping -c -a 127.0.0.1 -C -1', /whole number|argument missing/],
  ['rping -c -a 127.0.0.1 -C many', /whole number/],
  ['rping -c -a 127.0.0.1 -P', /-P is for the server/],
  ['rping -s -I 127.0.0.1', /-I is for the client/],
  ['rping -s --no-crc', /iwarpd start/],
  ['rping -s --embedded --socket x', /--socket/],
  ['rping -s --native --embedded', /--embedded/],
  ['rping -s --native --socket x', /--socket/],
  ['rping -c -a 127.0.0.1 --native --no-crc', /driver of the real device/],
  ['rping -c -a 127.0.0.1 -x', /unknown option '-x'/],
  ['nfs', /missing subcommand: serve, ls, cat or put; see `iwarpd nfs --help`/],
  ['fault', /missing subcommand: add, list or remove; see `iwarpd fault --help`/],
  ['fault add delay --ms x', /'x' for --ms: .*; see `iwarpd fault add --help`/],
  ['fault add flood', /unknown fault kind 'flood'/],
  ['nfs frob', /unknown command 'frob'/],
  ['nfs serve', /missing required argument 'DIR'/],
  ['nfs serve . --port 65536', /to 65535/],
  ['nfs serve . --native --embedded', /--native uses a real device/],
  ['nfs ls nowhere', /nowhere is not HOST:PATH/],
  ['nfs cat 127.0.0.1:/x --embedded --socket x', /--socket/],
  ['nfs put x', /missing required argument 'HOST:PATH'/],
  ['bench --only nothing', /unknown measurement 'nothing'; choose from write-64k/],
  ['bench --rounds 0', /from 1 to 1000/],
  ['capture', /required option '-w, --write <FILE>' not specified/],
  ['capture -w x --qp 0', /from 1 to 16777215/],
  ['trace --address nowhere', /IPv4 or IPv6 address/],
  [
    'trace --only foo',
    /must be a comma-separated list of wqe, cqe, mpa, fpdu, packet, end, refusal; see/,
  ],
  ['decode', /missing required argument 'FILE'/],
  ['doctor --jsn', /Did you mean --json/],
  ['stop a/b', /must be 1 to 32 letters, digits, or any of \. _ -; see/],
  ['stop one --all', /--instance, --socket and --all each name daemons/],
  ['stop one --instance two', /--instance, --socket and --all each name daemons/],
];

describe('an invalid command line', () => {
  it.each(INVALID)('iwarpd %s', async (line, named) => {
    const finished = await runCommand(line === '' ? [] : line.split(' '));
    expect(finished.stderr).toMatch(named);
    expect(finished.stderr).toMatch(/^iwarpd: [^\n]+\n$/);
    expect(finished.stdout).toBe('');
    expect(finished.status).toBe(line.includes('--config') ? 1 : 2);
  });
});

it.each(['--version', '-V', 'version'])('iwarpd %s prints the version', async (word) => {
  const finished = await runCommand([word]);
  expect(finished).toMatchObject({ status: 0, stdout: `${VERSION}\n`, stderr: '' });
});

describe('help', () => {
  it('lists the commands, on standard output', async () => {
    const finished = await runCommand(['--help']);
    expect(finished.status).toBe(0);
    for (const command of ['start', 'status', 'devices', 'rping', 'bench', 'doctor']) {
      expect(finished.stdout).toMatch(new RegExp(`^  ${command}\\b`, 'm'));
    }
  });

  it('of a command lists its options', async () => {
    const finished = await runCommand(['rping', '--help']);
    expect(finished.status).toBe(0);
    for (const letter of 'scapICSvVdPq') expect(finished.stdout).toMatch(` -${letter}`);
  });

  it('prints the version of the package', async () => {
    const finished = await runCommand(['--version']);
    expect(finished).toMatchObject({ status: 0, stderr: '' });
    expect(finished.stdout).toMatch(/^[0-9]+\.[0-9]+\.[0-9]+\n$/);
  });
});
