/** The faults of an embedded provider, with the same checks and status as those of a daemon. */
import type { FaultControl, FaultSpec, FaultStatus } from '#contract/protocol/faults';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { noDevice } from '../clients/objects/device-directory.ts';
import { parseFaultPeer } from '../host/fault-peer.ts';
import type { RnicHost } from '../host/rnic-host.ts';

export class EmbeddedFaults implements FaultControl {
  readonly #host: RnicHost;
  readonly #assertOpen: () => void;

  /** `assertOpen` throws once the host is closed. */
  constructor(host: RnicHost, assertOpen: () => void) {
    this.#host = host;
    this.#assertOpen = assertOpen;
  }

  async addFault(spec: FaultSpec): Promise<FaultStatus> {
    // Loaded on demand: programs without faults start sooner.
    const [{ faultSpec }, { inputFault }] = await Promise.all([
      import('../control/fault-schemas.ts'),
      import('../control/input-fault.ts'),
    ]);
    this.#assertOpen();
    const parsed = faultSpec.safeParse(spec);
    if (!parsed.success) {
      const { field, reason } = inputFault(parsed.error);
      throw invalid(field === '' ? reason : `${field}: ${reason}`);
    }
    const { device, peer } = parsed.data;
    const { devices } = this.#host;
    if (device !== undefined && !devices.some(({ name }) => name === device)) {
      throw invalid(`device: ${noDevice(device, devices)}`);
    }
    const end = peer === undefined ? undefined : parseFaultPeer(peer);
    if (typeof end === 'string') throw invalid(`peer: ${end}`);
    const wrong = this.#host.faults.wrongTransport(parsed.data);
    if (wrong !== undefined) throw invalid(`kind: ${wrong}`);
    return this.#host.faults.add(parsed.data, end).status;
  }

  async faults(): Promise<readonly FaultStatus[]> {
    this.#assertOpen();
    return this.#host.faults.injector.faults.map(({ status }) => status);
  }

  async removeFault(id: number): Promise<FaultStatus> {
    this.#assertOpen();
    const fault = this.#host.faults.remove(id);
    if (fault === undefined) throw new VerbsError('ENOENT', `no fault ${id}`);
    return fault.status;
  }

  async removeFaults(): Promise<readonly FaultStatus[]> {
    const all = await this.faults();
    this.#host.faults.clear();
    return all;
  }
}
