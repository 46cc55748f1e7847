/** rdma_cm commands of two files of a hostile program, with real connections over loopback. */
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { QuotaLedger } from '#daemon/clients/objects/quotas';
import type { CmFile } from '#daemon/kernel/cm/file';
import type { Draws } from '#test/support/draws';
import { hexOf } from '#test/support/hex';
import { cmCommands, connParam } from '#test/support/kernel-commands';
import { mutated } from '#test/support/mutate';
import { RdmaCmRig } from '#test/support/rdma-cm-rig';
import { UverbsRig } from '#test/support/uverbs-rig';
import { handle, LOOK_EVERY, size } from '../kernel-arguments.ts';
import { canary, claim, type FuzzState, type FuzzTarget, type Outcome } from '../target.ts';

/** `RDMA_CM_EVENT_CONNECT_REQUEST` and `RDMA_CM_EVENT_CONNECT_RESPONSE`. */
const CONNECT_REQUEST = 4;
const CONNECT_RESPONSE = 5;
const PORT_SPACES = [0x0106, 0x0106, 0x0106, 0x0111, 0x0111, 0x0002, 0x013f];
const GROUPS = ['239.1.1.1', '239.1.1.2', '10.255.255.1', '0.0.0.0'];
/** Maximum turns until a connect request arrives over loopback. */
const TURNS_MAX = 100;
const PORTS = [0, 0, 0, 7471];
const ADDRESSES = ['127.0.0.1', '127.0.0.1', '127.0.0.1', '0.0.0.0', '10.255.255.1'];

/** A well-formed rdma_cm command with arbitrary arguments. */
function cmCommand(draws: Draws, port: number): Uint8Array {
  const id = handle(draws);
  const address = draws.pick(ADDRESSES);
  const parameters = (): string =>
    connParam({
      qpn: draws.oneIn(2) ? draws.below(8) : draws.word(),
      data: [...draws.bytes(draws.oneIn(4) ? draws.below(256) : draws.below(20))],
      ird: draws.oneIn(2) ? draws.below(4) : draws.below(256),
      ord: draws.oneIn(2) ? draws.below(4) : draws.below(256),
      retry: draws.below(256),
      rnr: draws.below(256),
      flow: draws.oneIn(2),
      valid: !draws.oneIn(8),
    });
  switch (draws.below(24)) {
    case 0:
    case 1:
    case 2:
      return cmCommands.createId(
        draws.wide(),
        draws.oneIn(6) ? draws.word() : draws.pick(PORT_SPACES),
        draws.below(6),
      );
    case 3:
      return cmCommands.destroyId(id);
    case 4:
      return cmCommands.bindIp(id, address, draws.pick(PORTS));
    case 5:
      return cmCommands.bind(id, address, draws.pick(PORTS));
    case 6:
      return cmCommands.resolveIp(id, address, port);
    case 7:
      return cmCommands.resolveAddr(id, address, port);
    case 8:
      return cmCommands.resolveRoute(id, size(draws, 2000));
    case 9:
      return cmCommands.queryRoute(id);
    case 10:
      return cmCommands.connect(id, parameters());
    case 11:
    case 12:
      return cmCommands.listen(id, size(draws, 8));
    case 13:
      return cmCommands.accept(id, draws.wide(), parameters());
    case 14:
      return cmCommands.reject(
        id,
        [...draws.bytes(draws.below(20))],
        draws.oneIn(2) ? 0 : draws.below(256),
      );
    case 15:
      return draws.oneIn(2) ? cmCommands.disconnect(id) : cmCommands.notify(id, size(draws, 8));
    case 16:
      return cmCommands.initQpAttr(id, size(draws, 7));
    case 17:
      return cmCommands.getEvent(draws.oneIn(4) ? size(draws, 400) & 0xffff : 336);
    case 18: {
      const value = hexOf(draws.bytes(draws.pick([1, 4, 4, 8, 40])));
      return cmCommands.setOption(id, size(draws, 3), size(draws, 5), value);
    }
    case 19:
      return cmCommands.joinMulticast(
        id,
        draws.wide(),
        draws.pick(GROUPS),
        size(draws, 2) & 0xffff,
      );
    case 20:
      return cmCommands.leaveMulticast(id);
    case 21:
      return cmCommands.resolveIbService(id);
    case 22:
      return cmCommands.writeEvent(id, draws.pick([18, 19, 9]), draws.wide(), size(draws, 8));
    default:
      return draws.oneIn(2)
        ? cmCommands.query(id, size(draws, 4), draws.oneIn(4) ? size(draws, 400) & 0xffff : 280)
        : cmCommands.migrateId(id, draws.oneIn(4) ? draws.word() : draws.pick([100, 101]));
  }
}

/** A whole conversation with an rdma_cm file, to mutate. */
export const CM_CORPUS: readonly Uint8Array[] = [
  cmCommands.createId(1n),
  cmCommands.bind(0, '127.0.0.1', 0),
  cmCommands.listen(0, 4),
  cmCommands.query(0, 0),
  cmCommands.createId(2n),
  cmCommands.resolveAddr(1, '127.0.0.1', 7471),
  cmCommands.resolveRoute(1),
  cmCommands.connect(1, connParam({ qpn: 2 })),
  cmCommands.accept(2, 3n, connParam({ qpn: 3 })),
  cmCommands.reject(2, [1, 2]),
  cmCommands.getEvent(),
  cmCommands.initQpAttr(1, 3),
  cmCommands.setOption(0, 0, 1, '01000000'),
  cmCommands.migrateId(0, 101),
  cmCommands.disconnect(1),
  cmCommands.destroyId(1),
];

class CmState implements FuzzState {
  readonly #rig: RdmaCmRig;
  readonly #roce: boolean;
  readonly #files: readonly CmFile[];
  #port = 7471;
  #inputs = 0;

  constructor(transport: 'iwarp' | 'roce') {
    const devices = [{ name: 'fuzzed', addresses: ['127.0.0.1'], transport }];
    this.#rig = new RdmaCmRig(new UverbsRig({ devices }));
    this.#roce = transport === 'roce';
    this.#files = [this.#rig.file, this.#rig.openFile(101)];
  }

  run(draws: Draws): Outcome | Promise<Outcome> {
    this.#inputs += 1;
    if (this.#inputs % 200 === 1) this.#createQPs();
    if (draws.oneIn(150)) return this.#connect(draws);
    const outcome = this.#act(draws);
    if (this.#inputs % LOOK_EVERY !== 0) return outcome;
    for (const file of this.#files) file.assertDeepInvariants();
    this.#rig.verbs.host.assertDeepInvariants();
    return new Promise((resolve) => setImmediate(() => resolve(outcome)));
  }

  async close(): Promise<void> {
    await this.#rig.close();
    const { objects } = this.#rig.verbs.client.ledger.usage();
    claim((objects['id'] ?? 0) === 0, `${objects['id']} ids are left`);
    claim(this.#rig.verbs.host.connections().length === 0, 'connections are left');
  }

  #act(draws: Draws): Outcome {
    const file = draws.oneIn(6) ? this.#files[1] : this.#files[0];
    const payload = draws.oneIn(4)
      ? mutated(draws.pick(CM_CORPUS), CM_CORPUS, draws, draws.between(1, 3))
      : cmCommand(draws, draws.oneIn(4) ? draws.word() & 0xffff : this.#port);
    if (draws.recording) draws.show(`write ${hexOf(payload)}`);
    try {
      const { status, response } = this.#rig.reply(payload, file);
      // Remember where an id listens.
      if (payload[0] === 19 && response !== undefined && response.length >= 20) {
        this.#port = new DataView(response.buffer, response.byteOffset).getUint16(18) || this.#port;
      }
      return status < 0 ? `errno ${-status}` : 'done';
    } catch (error) {
      if (!(error instanceof IpcFormatError)) throw error;
      return 'ended';
    }
  }

  /** Connects two queue pairs of the program, as a target for later commands. */
  async #connect(draws: Draws): Promise<Outcome> {
    const rig = this.#rig;
    try {
      const [active, passive] = this.#roce ? [17, 18] : [rig.createQP().qpn, rig.createQP().qpn];
      const { port } = rig.listener(1n, 2);
      this.#port = port;
      const id = rig.routed(2n, port);
      rig.must(cmCommands.connect(id, connParam({ qpn: active })));
      for (let turn = 0; turn < TURNS_MAX; turn++) {
        await new Promise((resolve) => setImmediate(resolve));
        const event = rig.poll();
        if (event?.type === CONNECT_RESPONSE && event.id === id) {
          rig.must(cmCommands.accept(id, 0n, connParam({ qpn: 0, valid: false })));
          return 'connected';
        }
        if (event?.type !== CONNECT_REQUEST) continue;
        rig.must(cmCommands.accept(event.id, 3n, connParam({ qpn: passive })));
        if (this.#roce) continue;
        if (draws.recording) draws.show(`connected ${id} and ${event.id}`);
        return 'connected';
      }
      return 'no request';
    } catch (error) {
      // The rig reports a refusal: the quota is exhausted, or other events arrived in between.
      if (!(error instanceof Error) || !/^refused with -\d+$/.test(error.message)) throw error;
      return 'refused';
    }
  }

  #createQPs(): void {
    if (this.#roce) return;
    try {
      this.#rig.createQP();
    } catch {
      // The quota is exhausted; use the existing objects.
    }
  }
}

/** Commands of rdma_cm, between two files, with real connections. */
export const kernelCm: FuzzTarget = {
  name: 'kernel-cm',
  about: 'rdma_cm commands of two files, with real connections',
  batchInputs: 3_000,
  weight: 8_000,
  smokeInputs: 4_000,
  // Ids that stay charged to the quota.
  canary: canary(200, QuotaLedger.prototype, 'note', (note, kind, change) => {
    if (kind !== 'id' || change > 0) note(kind, change);
  }),
  open: () => new CmState('iwarp'),
};

/** The same for a RoCE device, whose connections need no queue pair. */
export const kernelCmRoce: FuzzTarget = {
  ...kernelCm,
  name: 'kernel-cmroce',
  about: 'rdma_cm commands of two files on a RoCE device, with real connections',
  open: () => new CmState('roce'),
};
