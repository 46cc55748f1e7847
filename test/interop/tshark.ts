/**
 * Wireshark's dissector as an independent judge: it shares no code with the daemon.
 *
 * It finds MPA by the Request, which must be in the recording, and checks CRCs when the Reply has C.
 * Two known quirks: it treats MPA revision 2's S flag as a reserved bit, and its RPC-over-RDMA
 * heuristic, switched off here, calls short Sends malformed.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** An FPDU as Wireshark reads it. */
export interface DissectedFpdu {
  /** Number of the frame in which it ends, counted from 1 as Wireshark does. */
  readonly frame: number;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly ulpduLength: number;
  /** RDMAP opcode. */
  readonly opcode: number;
  readonly last: boolean;
  /** Set when it is tagged; `to` in hexadecimal, 16 digits. */
  readonly tagged: { readonly stag: number; readonly to: string } | undefined;
  /** Set when it is untagged. */
  readonly untagged: { readonly qn: number; readonly msn: number; readonly mo: number } | undefined;
  readonly crc: 'good' | 'bad' | 'unchecked';
}

/** A Terminate's control word as Wireshark reads it. */
interface DissectedTerminate {
  readonly frame: number;
  readonly layer: number;
  readonly etype: number;
  readonly code: number;
}

/** Wireshark's dissection of a recording. */
export interface Dissection {
  readonly fpdus: readonly DissectedFpdu[];
  /** Numbers of the frames that it calls malformed, or whose lengths do not fit. */
  readonly malformed: readonly number[];
  readonly crcGood: number;
  readonly crcBad: number;
  readonly terminates: readonly DissectedTerminate[];
}

type Fields = Map<string, { readonly show: string; readonly value: string; readonly text: string }>;

const FIELD =
  /<field name="([^"]*)"(?: showname="([^"]*)")?[^>]*? show="([^"]*)"(?: value="([^"]*)")?/;
const LAYERS = 'iwarp_mpa iwarp_ddp_rdmap _ws.malformed';

/** Gathers FPDUs from the lines of tshark's PDML, which has one field per line. */
class PdmlReader {
  readonly fpdus: DissectedFpdu[] = [];
  readonly malformed = new Set<number>();
  readonly terminates: DissectedTerminate[] = [];
  #frame = 0;
  #ports: readonly [number, number] = [0, 0];
  #fields: Fields | undefined;

  handleLine(line: string): void {
    const ports = /<proto name="tcp".*Src Port: (\d+), Dst Port: (\d+)/.exec(line);
    if (ports) this.#ports = [Number(ports[1]), Number(ports[2])];
    if (line.includes('<proto name="_ws.malformed"') || line.includes('"iwarp_mpa.bad_length"')) {
      this.malformed.add(this.#frame);
    }
    if (line.startsWith('</packet>')) this.#finishFpdu();
    const [, name = '', text = '', show = '', value = ''] = FIELD.exec(line) ?? [];
    if (name === 'num') this.#frame = Number(/ show="(\d+)"/.exec(line)?.[1]);
    if (name === 'iwarp_mpa.ulpdulength') {
      this.#finishFpdu();
      this.#fields = new Map();
    }
    this.#fields?.set(name, { show, value, text });
  }

  #finishFpdu(): void {
    const fields = this.#fields;
    this.#fields = undefined;
    if (fields === undefined) return;
    const number = (name: string): number => Number(fields.get(name)?.show);
    const [sourcePort, destinationPort] = this.#ports;
    const check = fields.get('iwarp_mpa.crc_check')?.text;
    this.fpdus.push({
      frame: this.#frame,
      sourcePort,
      destinationPort,
      ulpduLength: number('iwarp_mpa.ulpdulength'),
      opcode: number('iwarp_rdma.opcode'),
      last: number('iwarp_ddp.last_flag') === 1,
      tagged: fields.has('iwarp_ddp.stag')
        ? {
            stag: Number.parseInt(fields.get('iwarp_ddp.stag')?.value ?? '', 16),
            to: fields.get('iwarp_ddp.tagged_offset')?.value ?? '',
          }
        : undefined,
      untagged: fields.has('iwarp_ddp.qn')
        ? { qn: number('iwarp_ddp.qn'), msn: number('iwarp_ddp.msn'), mo: number('iwarp_ddp.mo') }
        : undefined,
      crc: check === undefined ? 'unchecked' : check.includes('Good') ? 'good' : 'bad',
    });
    if (fields.has('iwarp_rdma.terminate')) this.#addTerminate(fields);
  }

  #addTerminate(fields: Fields): void {
    // Each layer has its own fields for error type and code.
    const starting = (prefix: string): number => {
      const found = [...fields].find(([name]) => name.startsWith(prefix));
      return Number.parseInt(found?.[1].value ?? '', 16);
    };
    this.terminates.push({
      frame: this.#frame,
      layer: starting('iwarp_rdma.term_layer'),
      etype: starting('iwarp_rdma.term_etype'),
      code: starting('iwarp_rdma.term_errcode'),
    });
  }
}

/** Runs tshark on a recording; throws its error message if it cannot read the file. */
export async function dissect(pcapFile: string): Promise<Dissection> {
  const tshark = spawn(
    'tshark',
    [
      ...['-n', '-r', pcapFile, '--disable-protocol', 'rpcordma'],
      ...['-Y', 'iwarp_mpa || _ws.malformed', '-T', 'pdml', '-J', LAYERS],
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let complaints = '';
  tshark.stderr.setEncoding('utf8').on('data', (text: string) => {
    complaints += text;
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    tshark.on('error', reject);
    tshark.on('close', resolve);
  });
  // A failure to start is thrown where it is awaited, below.
  ended.catch(() => undefined);
  const reader = new PdmlReader();
  for await (const line of createInterface({ input: tshark.stdout })) reader.handleLine(line);
  const status = await ended;
  if (status !== 0) throw new Error(`tshark cannot read ${pcapFile}: ${complaints.trim()}`);
  return {
    fpdus: reader.fpdus,
    malformed: [...reader.malformed],
    crcGood: reader.fpdus.filter(({ crc }) => crc === 'good').length,
    crcBad: reader.fpdus.filter(({ crc }) => crc === 'bad').length,
    terminates: reader.terminates,
  };
}
