/**
 * Devices of a host in this process, served as a daemon serves them to unmodified programs. It makes
 * the parts directly, so its devices may use any transport.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TapHub } from '#daemon/capture/tap-hub';
import { WorkHub } from '#daemon/capture/work-hub';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { shimVariables } from '#daemon/console/shim-environment';
import type { DeviceConfig } from '#daemon/host/device-config';
import type { HostId } from '#daemon/host/host-id';
import type { HostSystem } from '#daemon/host/links/network';
import { hostSystem, isolatedSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { IpcServer } from '#daemon/ipc/ipc-server';
import { publishSysfs, sysfsPath } from '#daemon/kernel/sysfs-tree';
import { Refusals } from '#daemon/refusals/refusals';
import { patience } from './patience.ts';

export class RoceRig {
  readonly #folder = mkdtempSync(join(tmpdir(), 'iwarpd-roce-'));
  readonly socketPath = join(this.#folder, 'iwarpd.sock');
  readonly host: RnicHost;
  /** Ids that have listened; some may be gone. */
  readonly #listeners = new Set<HostId>();
  #server: IpcServer | undefined;

  private constructor(devices: readonly DeviceConfig[], system: HostSystem) {
    this.host = new RnicHost({ system, devices, roce: ROCE_NETWORK });
    const { cm } = this.host;
    const listen = cm.listen.bind(cm);
    cm.listen = (id, backlog) => {
      listen(id, backlog);
      this.#listeners.add(id);
    };
  }

  static start(...devices: readonly DeviceConfig[]): Promise<RoceRig> {
    return RoceRig.#serve(new RoceRig(devices, hostSystem()));
  }

  /** Nothing leaves the host: its addresses and ports are its own. */
  static startIsolated(...devices: readonly DeviceConfig[]): Promise<RoceRig> {
    return RoceRig.#serve(new RoceRig(devices, isolatedSystem(devices)));
  }

  static async #serve(rig: RoceRig): Promise<RoceRig> {
    const { host, socketPath } = rig;
    const directory = new DeviceDirectory(host, undefined);
    rig.#server = await IpcServer.listen({
      socketPath,
      directory,
      quotas: DEFAULT_QUOTAS,
      memoryTiers: ['shared', 'process_vm', 'agent'],
      allowOtherUsers: false,
      unreadMaxBytes: 2 ** 22,
      greetingTimeoutMs: patience(),
      log: { note: () => undefined },
      taps: new TapHub(),
      work: new WorkHub(host.devices.map(({ name, nic }) => ({ name, watch: nic.watch }))),
      refusals: new Refusals(() => new Date().toISOString()),
      operate: () => Promise.reject(new Error('no operations')),
    });
    publishSysfs(sysfsPath(socketPath), directory);
    return rig;
  }

  /** The variables that direct a program to the devices. */
  get environment(): Readonly<Record<string, string>> {
    return shimVariables(this.socketPath, {});
  }

  /** How many programs are connected. */
  async programs(): Promise<number> {
    return (await this.#server?.clients())?.length ?? 0;
  }

  /** Whether a program listens at `port` of rdma_cm. */
  listens(port: number): boolean {
    return [...this.#listeners].some(({ state, localAddress }) => {
      return state === 'listening' && localAddress?.port === port;
    });
  }

  async stop(): Promise<void> {
    this.host.assertDeepInvariants();
    this.#server?.assertDeepInvariants();
    await this.#server?.close();
    await this.host.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
