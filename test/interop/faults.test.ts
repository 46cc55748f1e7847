/** The effect of each kind of fault that an unmodified program can notice. */
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import type { FaultSpec, FaultStatus } from '#contract/protocol/faults';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { withFault } from '#verbs-api/testing/index';
import type { RunningCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { quiet } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type EndedPair, endOf, ProgramBench } from './program-bench.ts';

const LEFT = '127.0.0.2';
const RIGHT = '127.0.0.3';
/** Exit status of `timeout` for a program that it ended. */
const TIMED_OUT = 124;
const PINGS = 10;

let bench: ProgramBench;
let control: DaemonControl;

beforeAll(async () => {
  bench = new ProgramBench();
  // Devices that request markers, so there are some to corrupt.
  const options = ['--device', `left=${LEFT}`, '--device', `right=${RIGHT}`, '--no-native'];
  await bench.start([...options, '--markers']);
  control = new DaemonControl({ socketPath: bench.socketPath });
});

afterEach(async () => {
  expect(await control.faults()).toEqual([]);
});

afterAll(() => bench.stop());

/** The outcome of a pair of programs under a fault, and the fault's counts. */
interface Outcome extends EndedPair {
  readonly fault: FaultStatus;
  readonly seconds: number;
}

/** Runs a server at the right and its client at the left; the fault affects the client. */
async function under(spec: FaultSpec, run: (port: number) => Promise<EndedPair>): Promise<Outcome> {
  const port = await freePort();
  const place = { socketPath: bench.socketPath };
  return await withFault(
    spec,
    async (fault) => {
      const start = performance.now();
      const ends = await run(port);
      const seconds = (performance.now() - start) / 1000;
      return { ...ends, fault: await fault.status(), seconds };
    },
    place,
  );
}

const rpingServer = (port: number, ...more: string[]) => {
  return ['rping', '-s', '-a', RIGHT, '-p', `${port}`, '-C', `${PINGS}`, ...more];
};
const rpingClient = (port: number, ...more: string[]) => {
  return ['rping', '-c', '-a', RIGHT, '-I', LEFT, '-p', `${port}`, '-C', `${PINGS}`, '-v', ...more];
};

/** rping; a server without a client is ended after `seconds`. */
async function rping(spec: FaultSpec, seconds = 20, ...more: string[]): Promise<Outcome> {
  return await under(spec, async (port) => {
    const server = await bench.server(port, rpingServer(port, ...more), seconds);
    const client = await bench.run(rpingClient(port, ...more), seconds);
    return { client, server: await endOf(server) };
  });
}

const pings = ({ output }: { output: string }) => output.match(/ping data: /g)?.length ?? 0;

describeWith(['rdma-programs'], 'rping under a fault', () => {
  it('delay: is slower', async () => {
    const spec: FaultSpec = { kind: 'delay', ms: 30, device: 'left', direction: 'out' };
    const { client, server, seconds, fault } = await rping(spec);
    expect([client.status, server.status, pings(client)]).toEqual([0, 0, PINGS]);
    // A ping costs the client two messages and a Read response, in sequence.
    expect(seconds).toBeGreaterThan(PINGS * 2 * 0.03);
    expect(fault.fired).toBeGreaterThan(PINGS * 2);
  });

  it('slice: receives everything, however it is split', async () => {
    const { client, server } = await rping({ kind: 'slice', bytes: 5 }, 20, '-V', '-S', '3000');
    expect([client.status, server.status], client.output + server.output).toEqual([0, 0]);
    expect(client.output).not.toContain('data mismatch');
  });

  it('stall: waits, and resumes when the fault is removed', async () => {
    const port = await freePort();
    const server = await bench.server(port, rpingServer(port));
    const spec: FaultSpec = { kind: 'stall', device: 'left', opcode: 'read-response', every: 4 };
    const client = await withFault(
      spec,
      async () => {
        // A pipe is not flushed line by line unless stdbuf asks for it.
        const running = bench.program(['stdbuf', '-oL', ...rpingClient(port)]);
        await running.until(/ping data: rdma-ping-2/);
        await quiet(300);
        expect(running.stdout).not.toContain('rdma-ping-3');
        return { running };
      },
      { socketPath: bench.socketPath },
    );
    const ended = await endOf(client.running);
    expect([ended.status, pings(ended), (await endOf(server)).status]).toEqual([0, PINGS, 0]);
  });

  it.each<FaultSpec>([
    { kind: 'reset', afterBytes: 1000, device: 'left', direction: 'out' },
    { kind: 'close', afterBytes: 1000, device: 'left', direction: 'out' },
    { kind: 'corrupt-crc', device: 'left', opcode: 'send', nth: 5 },
    { kind: 'corrupt-marker', device: 'left', nth: 2 },
    { kind: 'corrupt-length', device: 'left', opcode: 'send', nth: 5 },
    { kind: 'corrupt-stag', device: 'left', opcode: 'read-response', nth: 3 },
    { kind: 'corrupt-msn', device: 'left', opcode: 'send', nth: 5 },
    { kind: 'corrupt-mo', device: 'left', opcode: 'send', nth: 5 },
    { kind: 'terminate', device: 'left', opcode: 'send', nth: 5 },
    { kind: 'qp-fatal', device: 'left', opcode: 'send', nth: 5 },
    { kind: 'device-fatal', device: 'left', opcode: 'send', nth: 5 },
  ])('$kind: both ends are disconnected on the way', async (spec) => {
    const { client, server, fault } = await rping(spec);
    expect(client.output).toContain('client DISCONNECT EVENT');
    expect(server.output).toContain('server DISCONNECT EVENT');
    expect(pings(client)).toBeLessThan(PINGS);
    expect(fault.fired).toBe(1);
  });

  it('corrupt-stag: a Read of the server is refused, as its completion reports', async () => {
    const spec: FaultSpec = {
      kind: 'corrupt-stag',
      device: 'right',
      opcode: 'read-request',
      nth: 3,
    };
    const { server, client } = await rping(spec);
    // IBV_WC_REM_ACCESS_ERR
    expect(server.output).toContain('cq completion failed status 10');
    expect(pings(client)).toBe(2);
  });

  it.each<FaultSpec>([
    { kind: 'cq-overrun', device: 'left', nth: 4 },
    { kind: 'completion-event-lost', device: 'left', nth: 4 },
  ])('$kind: waits for a lost completion', async (spec) => {
    const { client, server, fault } = await rping(spec, 3);
    expect([client.status, server.status]).toContain(TIMED_OUT);
    expect(pings(client)).toBeLessThan(PINGS);
    expect(fault.fired).toBe(1);
  });

  it('completion-event-late: is slower', async () => {
    const spec: FaultSpec = { kind: 'completion-event-late', ms: 50, device: 'left' };
    const { client, seconds, fault } = await rping(spec);
    expect([client.status, pings(client)]).toEqual([0, PINGS]);
    expect(seconds).toBeGreaterThan(PINGS * 0.05);
    expect(fault.fired).toBeGreaterThanOrEqual(PINGS);
  });

  it('errno: reports the verb that failed and its error', async () => {
    const memory = await rping({ kind: 'errno', errno: 'ENOMEM', verb: 'regMR', nth: 2 }, 3);
    expect(memory.client.output + memory.server.output).toContain('reg_mr failed');
    const create: FaultSpec = { kind: 'errno', errno: 'EAGAIN', verb: 'createQP', device: 'left' };
    const { client } = await rping(create, 3);
    expect(client.output).toContain('rdma_create_qp: Resource temporarily unavailable');
    expect(client.status).not.toBe(0);
    const connecting = { verb: 'cmConnect', errno: 'ENETUNREACH', device: 'left' } as const;
    const { client: alone } = await rping({ kind: 'errno', ...connecting }, 3);
    expect(alone.output).toContain('rdma_connect: Network is unreachable');
  });
});

describeWith(['rdma-programs'], 'ucmatose under a fault', () => {
  async function ucmatose(spec: FaultSpec, seconds = 20): Promise<Outcome> {
    return await under(spec, async (port) => {
      const rest = ['-p', `${port}`, '-C', '3'];
      const server = await bench.server(port, ['ucmatose', '-b', RIGHT, ...rest], seconds);
      const client = await bench.run(['ucmatose', '-s', RIGHT, '-b', LEFT, ...rest], seconds);
      return { client, server: await endOf(server) };
    });
  }

  it('mpa-late: waits', async () => {
    const { client, server, seconds, fault } = await ucmatose({ kind: 'mpa-late', ms: 700 });
    expect([client.status, server.status], client.output).toEqual([0, 0]);
    expect(fault.fired).toBe(1);
    expect(seconds).toBeGreaterThan(0.7);
  });

  it('mpa-reject: is rejected', async () => {
    const { client, fault } = await ucmatose({ kind: 'mpa-reject', device: 'right' }, 3);
    expect(client.output).toContain('event: RDMA_CM_EVENT_REJECTED');
    expect(fault.fired).toBe(1);
  });

  it('mpa-silent: gives up', async () => {
    const { client, fault } = await ucmatose({ kind: 'mpa-silent', device: 'right' }, 25);
    expect(client.output).toContain('event: RDMA_CM_EVENT_UNREACHABLE');
    expect(fault.fired).toBe(1);
  });

  it('mpa-depths: works without Reads', async () => {
    const { client, server, fault } = await ucmatose({ kind: 'mpa-depths', ird: 0, ord: 0 });
    expect([client.status, server.status], client.output).toEqual([0, 0]);
    expect(fault.fired).toBe(2);
  });
});

describeWith(['rdma-programs'], 'ib_write_bw and ib_read_bw under a fault', () => {
  async function perftest(
    program: string,
    spec: FaultSpec,
    seconds = 20,
  ): Promise<Outcome & { readonly megabytesPerSecond: number }> {
    const outcome = await under(spec, async (port) => {
      const words = [program, '-R', '-F', '-p', `${port}`, '-n', '64', '-s', '65536'];
      const server = await bench.server(port, [...words, '-d', 'right'], seconds);
      const client = await bench.run([...words, '-d', 'left', '--source_ip', LEFT, RIGHT], seconds);
      return { client, server: await endOf(server) };
    });
    const found = /^ 65536 +\d+ +[\d.]+ +([\d.]+)/m.exec(outcome.client.output);
    return { ...outcome, megabytesPerSecond: Number(found?.[1]) };
  }

  it('bandwidth: measures it', async () => {
    const spec: FaultSpec = { kind: 'bandwidth', bytesPerSecond: 4_000_000, device: 'left' };
    const { client, megabytesPerSecond } = await perftest('ib_write_bw', spec);
    expect(client.status, client.output).toBe(0);
    // Bytes in the device's buffer count as written: half a megabyte of four.
    expect(megabytesPerSecond).toBeGreaterThan(2);
    expect(megabytesPerSecond).toBeLessThan(6);
  });

  it('mpa-depths: reads one by one, and gets everything', async () => {
    const spec: FaultSpec = { kind: 'mpa-depths', device: 'right', ird: 1 };
    const { client, fault } = await perftest('ib_read_bw', spec);
    expect(client.status, client.output).toBe(0);
    expect(fault.fired).toBeGreaterThan(0);
  });

  it('errno: cannot register memory', async () => {
    const spec: FaultSpec = { kind: 'errno', errno: 'ENOMEM', verb: 'regMR', device: 'left' };
    const { client } = await perftest('ib_write_bw', spec, 3);
    expect(client.output).toContain("Couldn't allocate MR");
    expect(client.status).toBe(1);
  });
});

describeWith(['rdma-programs'], 'ibv_asyncwatch and ibv_devinfo under a fault', () => {
  let watch: RunningCommand;

  afterEach(async () => {
    // SIGKILL would end `run`, but not the program.
    watch.signal('SIGTERM');
    await watch.end();
  });

  async function watched(spec: FaultSpec, event: RegExp): Promise<void> {
    watch = bench.program(['stdbuf', '-oL', 'ibv_asyncwatch', '-d', 'left']);
    await watch.until(/async event FD/);
    await withFault(spec, () => watch.until(event), { socketPath: bench.socketPath });
  }

  /** The port of `left` as shown by ibv_devinfo, rdma (twice) and sysfs. */
  async function shownStates(): Promise<readonly (string | undefined)[]> {
    const { output: info } = await bench.run(['ibv_devinfo', '-d', 'left']);
    const { output: link } = await bench.run(['rdma', 'link', 'show', 'left/1']);
    const { output: file } = await bench.run(['cat', '/sys/class/infiniband/left/ports/1/state']);
    const [, state, physical] = /^link left\/1 state (\S+) physical_state (\S+)/m.exec(link) ?? [];
    return [/state:\s+(PORT_\w+)/.exec(info)?.[1], state, physical, file.trim()];
  }

  it('port-down: an event, the state, and an event at the end', async () => {
    watch = bench.program(['stdbuf', '-oL', 'ibv_asyncwatch', '-d', 'left']);
    await watch.until(/async event FD/);
    await withFault(
      { kind: 'port-down', device: 'left' },
      async () => {
        await watch.until(/event_type .*PORT_ERR \(10\), port 1/);
        expect(await shownStates()).toEqual(['PORT_DOWN', 'DOWN', 'DISABLED', '1: DOWN']);
      },
      { socketPath: bench.socketPath },
    );
    await watch.until(/event_type .*PORT_ACTIVE \(9\), port 1/);
    expect(await shownStates()).toEqual(['PORT_ACTIVE', 'ACTIVE', 'LINK_UP', '4: ACTIVE']);
  });

  it('port-up: an event without a change', async () => {
    await watched({ kind: 'port-up', device: 'left' }, /event_type .*PORT_ACTIVE \(9\), port 1/);
  });

  it('device-fatal: an event', async () => {
    await watched({ kind: 'device-fatal', device: 'left' }, /event_type .*DEVICE_FATAL \(8\)/);
  });
});
