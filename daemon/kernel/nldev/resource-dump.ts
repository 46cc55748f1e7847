/**
 * Replies to requests for the objects of a device: one by its number, or all, in as many datagrams as
 * needed. A dump continues after the last object of the previous part. So the daemon stores nothing for
 * a program that stops reading, and no part looks at more than its own objects. Objects destroyed
 * meanwhile are not listed.
 */
import type { ErrnoCode } from '#contract/verbs/errors';
import { Attr, PORTS } from './abi.ts';
import type { KernelDevice } from './devices.ts';
import {
  type Attribute,
  attributeU32,
  DATAGRAM_MAX_BYTES,
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

/** Objects to examine for one part, those of other ports or devices included. */
const PART_LOOKS_MAX = 4096;

export interface ResourceDump {
  readonly request: NetlinkMessage;
  readonly device: KernelDevice;
  readonly kind: ResourceKind;
  /** Lists objects of this port; 0: of all. */
  readonly port: number;
  /** Place of the last object examined. */
  readonly after: number;
}

/** Datagrams, and the remaining dump. */
export interface DumpPart {
  readonly datagrams: readonly Uint8Array[];
  readonly rest: ResourceDump | undefined;
  /** Why the reply is an error. */
  readonly refused?: { readonly code: ErrnoCode; readonly sentence: string };
}

/** The requested dump. EINVAL for a port that the device does not have. */
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
  const { kind, port } = dump;
  const part = new PartOfDump(dump, view);
  let { after } = dump;
  let looks = 0;
  for (const [place, entry] of kind.after(view, after)) {
    const chosen = entry !== undefined && (port === 0 || entry.port === port) ? entry : undefined;
    if (looks === PART_LOOKS_MAX || (chosen !== undefined && !part.add(chosen))) {
      return { datagrams: part.end(), rest: { ...dump, after } };
    }
    looks += 1;
    after = place;
  }
  const datagrams = part.isEmpty ? [] : part.end();
  return { datagrams: [...datagrams, emitDone(dump.request.header)], rest: undefined };
}

/** Packs objects into datagrams. */
class PartOfDump {
  readonly #dump: ResourceDump;
  readonly #view: ResourceView;
  readonly #datagrams: Uint8Array[] = [];
  #bytes = 0;
  #pending: Attribute[] = [];
  #pendingBytes = PREAMBLE_MAX_BYTES;

  constructor(dump: ResourceDump, view: ResourceView) {
    this.#dump = dump;
    this.#view = view;
  }

  get isEmpty(): boolean {
    return this.#datagrams.length === 0 && this.#pending.length === 0;
  }

  /** Returns false, without adding it, if the object belongs to the next part. */
  add(entry: ResourceEntry): boolean {
    const attribute = plainNested(this.#dump.kind.entry, entry.fields());
    const { length } = attribute;
    if (this.#pending.length > 0 && this.#pendingBytes + length > DATAGRAM_MAX_BYTES) {
      this.#emit();
      if (this.#bytes + DATAGRAM_MAX_BYTES > PART_MAX_BYTES) return false;
    }
    this.#pending.push(attribute);
    this.#pendingBytes += length;
    return true;
  }

  /** Returns the datagrams: at least one, since programs expect some until the dump is done. */
  end(): readonly Uint8Array[] {
    if (this.#pending.length > 0 || this.#datagrams.length === 0) this.#emit();
    return this.#datagrams;
  }

  #emit(): void {
    const { request, kind } = this.#dump;
    const header = { ...request.header, flags: NetlinkFlag.multi };
    const fields = [...ofDevice(this.#view.device), plainNested(kind.table, this.#pending)];
    const datagram = emitNetlink(header, fields);
    this.#datagrams.push(datagram);
    this.#bytes += datagram.length;
    this.#pending = [];
    this.#pendingBytes = PREAMBLE_MAX_BYTES;
  }
}

/** One object. EINVAL if the request names none, ENOENT if it does not exist. */
export function resourceRecord(
  { attributes }: NetlinkMessage,
  kind: ResourceKind,
  view: ResourceView,
): readonly Attribute[] | ErrnoCode {
  const number = attributeU32(attributes.get(kind.number));
  const port = attributeU32(attributes.get(Attr.portIndex));
  const portFits = kind.ofPort ? port === PORTS : port === undefined;
  if (number === undefined || !portFits) return 'EINVAL';
  const found = kind.find(view, number);
  if (found === undefined) return 'ENOENT';
  if (kind.ofPort && found.port !== port) return 'EAGAIN';
  return [...ofDevice(view.device), ...found.fields()];
}

function ofDevice({ index, name }: KernelDevice): Attribute[] {
  return [u32(Attr.deviceIndex, index), text(Attr.deviceName, name)];
}
