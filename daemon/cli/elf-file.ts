/** A program or library file in ELF: its loader, its libraries, its symbols. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

const HEADER_BYTES = 64;
const CLASS_64 = 2;
const SEGMENT_HEADER_MIN_BYTES = 56;
/** Segment types: loaded, dynamic section, interpreter path, note. */
const SEGMENT_LOAD = 1;
const SEGMENT_DYNAMIC = 2;
const SEGMENT_INTERPRETER = 3;
const SEGMENT_NOTE = 4;
/** The dynamic section: pairs of a tag and a value. */
const DYNAMIC_ENTRY_BYTES = 16;
const Tag = { needed: 1, strings: 5, stringsBytes: 10, rpath: 15, runpath: 29 } as const;
/** Far more than any real program has. */
const DYNAMIC_MAX_BYTES = 65_536;
const NAME_MAX_BYTES = 4096;
/** A program with more segments, or a longer loader path, could not run. */
const SEGMENTS_MAX = 256;
const PATH_MAX_BYTES = 4096;
/** The largest libraries have some hundred KiB of names. */
const STRINGS_MAX_BYTES = 16 << 20;
/** The note of Go's linker comes first, or nearly so. */
const NOTE_MAX_BYTES = 4096;
const GO_NOTE = 'Go\0\0';

/** A segment: its position in the file and in memory. */
interface Segment {
  readonly type: number;
  readonly at: number;
  readonly address: number;
  readonly bytes: number;
}

/** An open file; it reads on request, and must not be used after the descriptor is closed. */
export class ElfFile {
  readonly #file: number;
  readonly #header: Buffer;
  #segments: readonly Segment[] | undefined;
  #tags: readonly (readonly [tag: number, value: number])[] | undefined;

  /** The ELF file of this descriptor; undefined for other kinds of files. */
  static of(file: number): ElfFile | undefined {
    const header = bytesAt(file, 0, HEADER_BYTES);
    const isElf = header.length === HEADER_BYTES && header.toString('latin1', 0, 4) === '\x7fELF';
    return isElf ? new ElfFile(file, header) : undefined;
  }

  private constructor(file: number, header: Buffer) {
    this.#file = file;
    this.#header = header;
  }

  /** `e_machine` of a 64-bit file; undefined for one of 32 bits, of which nothing else is known. */
  get machine(): number | undefined {
    return this.#header[4] === CLASS_64 ? this.#header.readUInt16LE(18) : undefined;
  }

  /** The path of the dynamic loader; undefined in a static program and in a library. */
  get loader(): string | undefined {
    const named = this.#all().find(({ type }) => type === SEGMENT_INTERPRETER);
    if (named === undefined) return undefined;
    const length = Math.min(named.bytes, PATH_MAX_BYTES);
    return textOf(bytesAt(this.#file, named.at, length));
  }

  /** True if a loader can load it: neither static nor without a dynamic section. */
  get isDynamic(): boolean {
    return this.#all().some(({ type }) => type === SEGMENT_DYNAMIC);
  }

  /** True if the file has all of its segments; true for one of 32 bits, of which nothing is known. */
  get isWhole(): boolean {
    if (this.machine === undefined) return true;
    const { size } = fstatSync(this.#file);
    const all = this.#all();
    const count = Math.min(this.#header.readUInt16LE(56), SEGMENTS_MAX);
    return all.length === count && all.every(({ at, bytes }) => at + bytes <= size);
  }

  /** The libraries that it lists (DT_NEEDED), in order. */
  get needed(): readonly string[] {
    return this.#named(Tag.needed);
  }

  /** Where its loader looks for libraries, its own and (DT_RPATH only) those of its libraries. */
  get searchPaths(): { readonly rpath: readonly string[]; readonly runpath: readonly string[] } {
    const folders = (tag: number) => this.#named(tag).flatMap((paths) => paths.split(':'));
    return { rpath: folders(Tag.rpath), runpath: folders(Tag.runpath) };
  }

  /** Names of the symbols that it defines or uses, among other text of the dynamic section. */
  get dynamicNames(): ReadonlySet<string> {
    const at = this.#stringsAt();
    const bytes = this.#values(Tag.stringsBytes)[0] ?? 0;
    if (at === undefined) return new Set();
    const text = bytesAt(this.#file, at, Math.min(bytes, STRINGS_MAX_BYTES)).toString('latin1');
    return new Set(text.split('\0'));
  }

  /** True for what Go's linker made. */
  get isGo(): boolean {
    return this.#all().some(({ type, at, bytes }) => {
      if (type !== SEGMENT_NOTE) return false;
      return bytesAt(this.#file, at, Math.min(bytes, NOTE_MAX_BYTES)).includes(GO_NOTE);
    });
  }

  #all(): readonly Segment[] {
    this.#segments ??= this.machine === undefined ? [] : this.#readSegments();
    return this.#segments;
  }

  #readSegments(): Segment[] {
    const tableAt = Number(this.#header.readBigUInt64LE(32));
    const entryBytes = this.#header.readUInt16LE(54);
    const entries = Math.min(this.#header.readUInt16LE(56), SEGMENTS_MAX);
    const segments: Segment[] = [];
    if (entryBytes < SEGMENT_HEADER_MIN_BYTES) return segments;
    for (let index = 0; index < entries; index++) {
      const at = tableAt + index * entryBytes;
      const segment = bytesAt(this.#file, at, SEGMENT_HEADER_MIN_BYTES);
      if (segment.length < SEGMENT_HEADER_MIN_BYTES) return segments;
      segments.push({
        type: segment.readUInt32LE(0),
        at: Number(segment.readBigUInt64LE(8)),
        address: Number(segment.readBigUInt64LE(16)),
        bytes: Number(segment.readBigUInt64LE(32)),
      });
    }
    return segments;
  }

  #values(wanted: number): readonly number[] {
    this.#tags ??= this.#readTags();
    return this.#tags.filter(([tag]) => tag === wanted).map(([, value]) => value);
  }

  #readTags(): (readonly [number, number])[] {
    const dynamic = this.#all().find(({ type }) => type === SEGMENT_DYNAMIC);
    if (dynamic === undefined) return [];
    const table = bytesAt(this.#file, dynamic.at, Math.min(dynamic.bytes, DYNAMIC_MAX_BYTES));
    const tags: (readonly [number, number])[] = [];
    for (let at = 0; at + DYNAMIC_ENTRY_BYTES <= table.length; at += DYNAMIC_ENTRY_BYTES) {
      tags.push([Number(table.readBigUInt64LE(at)), Number(table.readBigUInt64LE(at + 8))]);
    }
    return tags;
  }

  /** Position of the dynamic section's text in the file. */
  #stringsAt(): number | undefined {
    const address = this.#values(Tag.strings)[0] ?? 0;
    const loaded = this.#all().find((segment) => {
      const { type } = segment;
      return (
        type === SEGMENT_LOAD &&
        address >= segment.address &&
        address < segment.address + segment.bytes
      );
    });
    return loaded === undefined ? undefined : loaded.at + address - loaded.address;
  }

  #named(tag: number): readonly string[] {
    const at = this.#stringsAt();
    if (at === undefined) return [];
    return this.#values(tag).map((name) => textOf(bytesAt(this.#file, at + name, NAME_MAX_BYTES)));
  }
}

function textOf(bytes: Buffer): string {
  return bytes.toString('latin1').split('\0', 1)[0] ?? '';
}

/** Up to `length` bytes of a file; fewer at its end, none at a position that no file has. */
export function bytesAt(file: number, position: number, length: number): Buffer {
  if (!Number.isSafeInteger(position) || position < 0) return Buffer.alloc(0);
  const bytes = Buffer.alloc(length);
  return bytes.subarray(0, readSync(file, bytes, 0, length, position));
}

/** The result for the open file at `path`; undefined if it cannot be opened. */
export function withFile<T>(path: string, use: (file: number) => T): T | undefined {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch {
    return undefined;
  }
  try {
    return use(file);
  } finally {
    closeSync(file);
  }
}
