/** Every fuzz target, by name. */
import type { FuzzTarget } from './target.ts';
import { configText } from './targets/config.ts';
import { httpRequest, httpSocket } from './targets/http.ts';
import { ipcCommand } from './targets/ipc-commands.ts';
import { ipcFrame, ipcValue } from './targets/ipc-values.ts';
import { kernelCm, kernelCmRoce } from './targets/kernel-cm.ts';
import { kernelFrame, kernelNetlink } from './targets/kernel-messages.ts';
import { kernelRoce } from './targets/kernel-roce.ts';
import { kernelVerbs } from './targets/kernel-verbs.ts';
import { nfsExport } from './targets/nfs.ts';
import { pcapFile, pcapPacket } from './targets/pcap.ts';
import { roceMad } from './targets/roce-mad.ts';
import { rocePacket } from './targets/roce-packet.ts';
import { roceUdp } from './targets/roce-udp.ts';
import { rpcCodec, rpcMachine } from './targets/rpc.ts';
import { ipcSocket, wireSocket } from './targets/sockets.ts';
import { wireFpdu, wireHeader, wireStartup } from './targets/wire-codecs.ts';
import { wireStream } from './targets/wire-stream.ts';

export const TARGETS: readonly FuzzTarget[] = [
  wireHeader,
  wireStartup,
  wireFpdu,
  wireStream,
  rocePacket,
  roceUdp,
  roceMad,
  ipcValue,
  ipcFrame,
  ipcCommand,
  kernelVerbs,
  kernelRoce,
  kernelCm,
  kernelCmRoce,
  kernelNetlink,
  kernelFrame,
  rpcCodec,
  rpcMachine,
  nfsExport,
  pcapFile,
  pcapPacket,
  httpRequest,
  httpSocket,
  configText,
  ipcSocket,
  wireSocket,
];

/** Targets by name or group. Throws for an unknown name. */
export function targetsNamed(names: readonly string[]): FuzzTarget[] {
  const found = new Set<FuzzTarget>();
  for (const name of names) {
    const meant = TARGETS.filter((one) => one.name === name || one.name.startsWith(`${name}-`));
    if (meant.length === 0) {
      const all = TARGETS.map((one) => one.name).join(', ');
      throw new Error(`unknown fuzz target '${name}'; choose from ${all}`);
    }
    for (const target of meant) found.add(target);
  }
  return [...found];
}
