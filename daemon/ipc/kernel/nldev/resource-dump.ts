/**
 * Answers to requests for the objects of a device: one of them by its number, or all, in as many
 * datagrams as they take. A dump continues after the last number sent, so nothing is kept for a program
 * that stops reading. Objects destroyed meanwhile are not listed.
 */
import type { ErrnoCode } from '../../../../verbs-api/contract/verbs/errors.ts';
import { Attr, PORTS } from './abi.ts';
import type { KernelDevice } from './devices.ts';
import {
  type Attribute,
  attributeU32,
  DATAGRAM_MAX_BYTES,
  emitAttribute,
  emitDone,
  emitNetlink,
  NetlinkFlag,
  type NetlinkMessage,
  plainNested,
  text,
  u32,
} from './message.ts';
import type { ResourceEntry, ResourceKind, ResourceView } from './resources.ts';

/** Bytes of datagrams in one reply: the preload library accepts at most 64 KiB. */
const PART_MAX_BYTES = 48 * 1024;
/** Bytes of a message before its objects: headers, and the device's number and name. */
const PREAMBLE_MAX_BYTES = 128;

/** An unfinished dump. */
export interface ResourceDump {
  readonly request: NetlinkMessage;
  readonly device: KernelDevice;
  readonly kind: ResourceKind;
  /** The objects of this port; 0 for all. */
  readonly port: number;
  /** Number of the last object sent. */
  readonly after: number;
}

/** Datagrams, and the rest of the dump. */
export interface DumpPart {
  readonly datagrams: readonly Uint8Array[];
  readonly rest: ResourceDump | undefined;
}

/** The dump that a request asks for. EINVAL for a port that the device does not have. */
export function resourceDump(
  request: NetlinkMessage,
  device: KernelDevice,
  kind: ResourceKind,
): ResourceDump | ErrnoCode {
  const port = attributeU32(request.attributes.get(Attr.portIndex)) ?? 0;
  if (port > PORTS) return 'EINVAL';
  return { request, device, kind, port: kind.ofPort ? port : 0, after: -1 };
}

/** The next datagrams of a dump; the last ones end it. */
export function dumpPart(dump: ResourceDump, view: ResourceView): DumpPart {
  const { request, kind, port, after } = dump;
  const entries = kind
    .entries(view)
    .filter((entry) => entry.number > after && (port === 0 || entry.port === port))
    .sort((one, other) => one.number - other.number);
  const header = { ...request.header, flags: NetlinkFlag.multi };
  const datagrams: Uint8Array[] = [];
  let [bytes, next] = [0, 0];
  while (next < entries.length && bytes + DATAGRAM_MAX_BYTES <= PART_MAX_BYTES) {
    const { attributes, end } = fittingEntries(kind, entries, next);
    const fields = [...ofDevice(view.device), plainNested(kind.table, attributes)];
    const datagram = emitNetlink(header, fields);
    datagrams.push(datagram);
    bytes += datagram.length;
    next = end;
  }
  const last = entries[next - 1];
  if (next < entries.length && last !== undefined) {
    return { datagrams, rest: { ...dump, after: last.number } };
  }
  return { datagrams: [...datagrams, emitDone(request.header)], rest: undefined };
}

/** The objects from `start` on that fit one datagram: at least one. */
function fittingEntries(
  kind: ResourceKind,
  entries: readonly ResourceEntry[],
  start: number,
): { readonly attributes: Attribute[]; readonly end: number } {
  const attributes: Attribute[] = [];
  let bytes = PREAMBLE_MAX_BYTES;
  let end = start;
  for (; end < entries.length; end += 1) {
    const entry = entries[end] as ResourceEntry;
    const attribute = plainNested(kind.entry, entry.fields());
    bytes += emitAttribute(attribute).length;
    if (attributes.length > 0 && bytes > DATAGRAM_MAX_BYTES) break;
    attributes.push(attribute);
  }
  return { attributes, end };
}

/** One object. EINVAL for a request that does not name one, ENOENT for one that is not there. */
export function resourceRecord(
  { attributes }: NetlinkMessage,
  kind: ResourceKind,
  view: ResourceView,
): readonly Attribute[] | ErrnoCode {
  const number = attributeU32(attributes.get(kind.number));
  const port = attributeU32(attributes.get(Attr.portIndex));
  const portFits = kind.ofPort ? port === PORTS : port === undefined;
  if (number === undefined || !portFits) return 'EINVAL';
  const found = kind.entries(view).find((entry) => entry.number === number);
  if (found === undefined) return 'ENOENT';
  if (kind.ofPort && found.port !== port) return 'EAGAIN';
  return [...ofDevice(view.device), ...found.fields()];
}

function ofDevice({ index, name }: KernelDevice): Attribute[] {
  return [u32(Attr.deviceIndex, index), text(Attr.deviceName, name)];
}
