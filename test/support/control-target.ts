/** A fake daemon for the control plane, with one object of each kind. */
import type {
  ConnectionFilter,
  ConnectionSummary,
  ObjectFilter,
  ObjectSummaries,
  PhaseCount,
  ResetReport,
} from '#contract/protocol/control';
import type { FaultSpec, FaultStatus } from '#contract/protocol/faults';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import type {
  Refusal,
  RefusalCount,
  RefusalFilter,
  RefusalList,
} from '#contract/protocol/refusals';
import type { TraceRequest, TraceSample } from '#contract/protocol/trace-sample';
import { ListedPart } from '#daemon/clients/objects/object-window';
import { CountedTimes, OperationTimes } from '#daemon/control/operation-times';
import type { ControlTarget } from '#daemon/control/target';

const CLIENT = {
  id: 3,
  pid: 77,
  uid: 1000,
  program: 'rping',
  connectedSeconds: 61,
  usage: {
    objects: { pd: 1, qp: 1, mr: 2 },
    sharedBytes: 4096,
    pinnedBytes: 128,
    tiers: { shared: 1, process_vm: 1 },
    tierReasons: { process_vm: 'the best for memory of the program' },
  },
};

const OWNER = { client: 3, pid: 77, program: 'rping', device: 'a' };

export class FixedTarget implements ControlTarget {
  readonly operationTimes = new OperationTimes(() => performance.now() / 1000);
  readonly turnTimes = new CountedTimes([0.01, 0.1]);
  readonly version = '1.2.3';
  ready = true;
  resets = 0;
  crcEngine = 'fast-crc32c';

  status(): DaemonStatus {
    return {
      version: this.version,
      pid: 42,
      uptimeSeconds: 7,
      ready: this.ready,
      socketPath: '/run/x/iwarpd.sock',
      crcEngine: this.crcEngine,
      health: {
        limits: { descriptors: { used: 30, limit: 1024 }, objects: { used: 3, limit: 100 } },
        logLinesDropped: 0,
        longestTurnSeconds: this.turnTimes.sumSeconds,
        ended: [],
      },
      network: 'host',
      loopback: 'memory',
      memoryTiers: ['shared', 'process_vm'],
      devices: [
        {
          device: { name: 'a', backend: 'emulated', nodeGuid: '0200000000000001', addresses: [] },
          portState: 'active',
          counters: { out_sends: 5, placed_bytes: 2 ** 40, something_new: 1 },
        },
        {
          device: {
            name: 'b',
            backend: 'native',
            nodeGuid: '0200000000000002',
            addresses: ['::1'],
          },
          portState: 'down',
          counters: { out_sends: 6 },
        },
      ],
      clients: [CLIENT],
      faults: 1,
      refusals: 0,
    };
  }

  devices() {
    return this.status().devices;
  }

  clients() {
    return this.status().clients;
  }

  objects(kind: keyof ObjectSummaries, filter: ObjectFilter): ObjectSummaries {
    const qp = {
      handle: 1,
      qpNum: 9,
      state: 'RTS',
      maxSendWr: 4,
      maxRecvWr: 4,
      srq: false,
      sendsTaken: 3,
      type: 'RC',
      receivesTaken: 2,
    };
    const mr = { handle: 2, key: 0x1234, address: '0x10', lengthBytes: 64, tier: 'shared' };
    const all = {
      qps: [
        { ...OWNER, ...qp },
        { ...OWNER, ...qp, device: 'b', pid: 78 },
      ],
      mrs: [{ ...OWNER, ...mr }],
      cqs: [{ ...OWNER, handle: 4, entries: 16 }],
    };
    const part = new ListedPart(filter);
    const shown = all[kind].filter(({ device, pid }) => part.takes(device, pid));
    return { qps: [], mrs: [], cqs: [], [kind]: shown };
  }

  connections(filter: ConnectionFilter): readonly ConnectionSummary[] {
    if (!new ListedPart(filter).takes('a')) return [];
    const local = { address: '127.0.0.1', port: 7174 };
    const remote = { address: '127.0.0.1', port: 40_000 };
    return [{ device: 'a', local, remote, role: 'responder', phase: 'established', qpNum: 9 }];
  }

  refusals(filter: RefusalFilter, uid = 1000): Promise<RefusalList> {
    const refusal: Refusal = {
      number: 5,
      at: '2026-01-01T00:00:00.000Z',
      pid: 77,
      uid,
      program: 'rping',
      api: 'verbs',
      verb: 'ibv_modify_qp',
      step: 'INIT to RTR',
      code: 'EINVAL',
      sentence: 'path_mtu must be 1 to 5, not 9',
      device: 'a',
      objects: { qp: 9 },
      times: 2,
    };
    const shown = (filter.after ?? 0) < refusal.number ? [refusal] : [];
    return Promise.resolve({ refusals: shown, last: refusal.number, lost: 0 });
  }

  refusalCounts(): readonly RefusalCount[] {
    return [{ api: 'verbs', verb: 'ibv_modify_qp', code: 'EINVAL', count: 2 }];
  }

  connectionCounts(): PhaseCount[] {
    return [{ device: 'a', phase: 'established', count: 1 }];
  }

  addFault(spec: FaultSpec): FaultStatus {
    return { id: 1, spec, matched: 0, fired: 0 };
  }

  faults(): readonly FaultStatus[] {
    return [this.addFault({ kind: 'delay', ms: 5 })];
  }

  removeFault(id: number): FaultStatus {
    return { ...this.addFault({ kind: 'delay', ms: 5 }), id, matched: 4, fired: 2 };
  }

  removeFaults(): readonly FaultStatus[] {
    return this.faults();
  }

  async recordTrace({ qp = 9 }: TraceRequest): Promise<TraceSample> {
    const micros = 1_700_000_000_000_000;
    return {
      records: [
        {
          micros,
          kind: 'wqe',
          device: 'a',
          qpn: qp,
          opcode: 'SEND',
          wrId: '0x7',
          bytes: 64,
          text: 'WQE SEND wr_id 0x7, 64 bytes, signaled',
        },
        { micros, kind: 'mpa', link: 1, by: 'us', text: 'MPA Request revision 2, CRC' },
        { micros, kind: 'fpdu', link: 1, by: 'us', opcode: 'Send', bytes: 64, text: 'Send QN 0' },
      ],
      lost: 2,
    };
  }

  async reset(): Promise<ResetReport> {
    this.resets += 1;
    return { leaks: [CLIENT], endedHolding: [], clients: 1, connections: 1, faults: 0 };
  }
}
