/**
 * rdma-core's own tests of rdma_cm with their two sides on two hosts. Debian ships them for one
 * host: a test forks both sides, and both take the address of its device. Here each host runs the
 * test without the other side; a TCP connection replaces the barrier and the queue between the
 * sides.
 *
 * The other tests cannot be split this way: they connect two queue pairs of one process, and a
 * process has the devices of either one daemon or the kernel.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PYTHON, unpackTests } from './pyverbs-runner.ts';

/**
 * The program of one side. Arguments: `passive` or `active`, the device and its address, the
 * passive side's address and TCP port, then names of tests.
 */
const SIDE = `
import json, multiprocessing, os, socket, sys, unittest

side, device, own, server, port, *names = sys.argv[1:]
passive = side == 'passive'
sys.argv[1:] = ['--dev', device, '--gid', '1']
folder = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [folder, os.path.join(folder, 'tests')]

from args_parser import parser
parser.parse_args()
import tests.base, tests.base_rdmacm, tests.rdmacm_utils
from tests.test_rdmacm import CMTestCase

# Seconds that a test may take, and seconds after which traffic counts as blocked.
LIMIT, STUCK = 60, 5
GROUP = '230' + server[server.find('.'):]


class Line:
    """Barrier and queue of the two sides."""

    def __init__(self):
        if passive:
            self.socket, _ = listener.accept()
        else:
            self.socket = socket.create_connection((server, int(port)))
        self.lines = self.socket.makefile('r')
        self.received = []

    def say(self, *message):
        self.socket.sendall((json.dumps(message) + '\\n').encode())

    def receive(self, kind):
        while True:
            for message in self.received:
                if message[0] == kind:
                    self.received.remove(message)
                    return message[-1]
            line = self.lines.readline()
            if not line:
                raise EOFError('the other side is gone')
            self.received.append(json.loads(line))

    def wait(self):
        self.say('wait')
        self.receive('wait')

    def put(self, value):
        self.say('put', value)

    def get(self):
        return self.receive('put')


def one_side(self, connection_resources, test_flow, bad_flow=False, **resources):
    line = Line()
    line.wait()
    self.syncer = self.notifier = line
    if 'multicast' not in test_flow.__name__:
        self.ip_addr = server
    words = {'connection_resources': connection_resources, 'passive': passive, **resources}
    process = multiprocessing.get_context('fork').Process(target=test_flow, kwargs=words)
    process.start()
    process.join(STUCK if bad_flow else LIMIT)
    stuck = process.is_alive()
    if stuck:
        process.terminate()
        process.join()
    line.socket.close()
    if stuck != bad_flow:
        self.fail('it is stuck' if stuck else 'traffic arrived')
    if not stuck:
        self.assertEqual(process.exitcode, 0)


def address(src=None, dst=None, **more):
    # The active side gives the passive side's address as its source; its route has the right one.
    ends = {'src': src, 'dst': dst}
    if src == dst != own:
        del ends['src']
    return whole_address(**{end: given for end, given in ends.items() if given}, **more)


def to_one_group(method):
    return lambda self, **words: method(self, **{**words, 'mc_addr': GROUP})


whole_address = tests.base_rdmacm.AddrInfo
tests.base_rdmacm.AddrInfo = address
tests.base.RDMATestCase._get_ip_mac = lambda self, device, port, index: self.args.append(
    [device, port, index, own, None])
tests.base.RDMACMBaseTest.two_nodes_rdmacm_traffic = one_side
connection = tests.rdmacm_utils.CMAsyncConnection
connection.join_to_multicast = to_one_group(connection.join_to_multicast)
connection.leave_multicast = to_one_group(connection.leave_multicast)

if passive:
    listener = socket.create_server(('', int(port)))
# Nothing is printed before both are there: who waits for the listener says so on a line of its own.
Line().wait()
suite = unittest.TestSuite(CMTestCase(name) for name in names)
sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
`;

/** Lays out tests and program in a folder; returns the first words of a side's command. */
export function layOutSides(folder: string): string {
  const program = join(folder, 'side.py');
  unpackTests(join(folder, 'tests'));
  // The package imports all of its tests, which takes an emulated processor long.
  writeFileSync(join(folder, 'tests/__init__.py'), '');
  writeFileSync(program, SIDE);
  return `PYTHONDONTWRITEBYTECODE=1 ${PYTHON} -u ${program}`;
}
