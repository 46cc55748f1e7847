/** `iwarpd decode`: prints the iWARP, RoCEv2 and SCTP traffic of a capture file as text. */
import { createReadStream } from 'node:fs';
import {
  CaptureDecoder,
  type CaptureSummary,
  type DecodedLine,
} from '#daemon/capture/capture-decoder';
import { CaptureError } from '#daemon/capture/capture-file';
import { CommandFailure, failureCode, fileFailureText } from '#daemon/console/failure';
import { counted, jsonLine, type Output } from '#daemon/console/output';
import { chooseCrcEngine } from '#daemon/host/crc-engine';
import { chooseCrc32 } from '#daemon/host/roce/crc32-engine';

/** Bytes read at a time. */
const PIECE_BYTES = 1024 * 1024;
const NANOS_PER_SECOND = 1e9;

/** The options as commander passes them. */
export interface DecodeArguments {
  readonly json?: boolean;
}

/**
 * Prints a line for each MPA frame, FPDU, end, and packet of RoCEv2 or SCTP in the file, or in standard input for `-`, and a
 * summary to standard error. CommandFailure if the file cannot be read or is not a capture.
 */
export async function runDecode(
  file: string,
  given: DecodeArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const show = given.json === true ? lineAsJson : textLine;
  const decoder = new CaptureDecoder({
    crc32c: chooseCrcEngine().crc32c,
    crc32: chooseCrc32(),
    line: (line) => output.line(show(line)),
  });
  const name = file === '-' ? 'standard input' : file;
  try {
    for await (const piece of pieces(file, signal)) decoder.push(piece);
    decoder.finish();
  } catch (error) {
    if (error instanceof CaptureError) throw new CommandFailure(`${name}: ${error.message}`);
    const code = failureCode(error);
    if (code === undefined || signal.aborted) throw error;
    throw new CommandFailure(`cannot read ${name}: ${fileFailureText(error)}`, { cause: error });
  } finally {
    if (decoder.summary.packets > 0) output.note(summaryLine(decoder.summary));
  }
}

async function* pieces(file: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const stream =
    file === '-' ? process.stdin : createReadStream(file, { highWaterMark: PIECE_BYTES, signal });
  for await (const piece of stream) {
    if (piece instanceof Uint8Array) yield piece;
  }
}

function seconds(nanos: bigint): string {
  return (Number(nanos) / NANOS_PER_SECOND).toFixed(6);
}

function textLine({ timeNanos, source, destination, text }: DecodedLine): string {
  return `${seconds(timeNanos).padStart(12)}  ${source} > ${destination}  ${text}`;
}

function lineAsJson({ timeNanos, source, destination, kind, text }: DecodedLine): string {
  return jsonLine({ seconds: Number(seconds(timeNanos)), source, destination, kind, text });
}

function summaryLine(summary: CaptureSummary): string {
  const { packets, connections, fpdus, errors, rocePackets, sctpPackets } = summary;
  const { otherConnections, otherPackets } = summary;
  const found = [
    counted(connections, 'iWARP connection'),
    counted(fpdus, 'FPDU'),
    ...(rocePackets > 0 ? [counted(rocePackets, 'RoCEv2 packet')] : []),
    ...(sctpPackets > 0 ? [counted(sctpPackets, 'SCTP packet')] : []),
    counted(errors, 'error'),
  ];
  return [
    `${counted(packets, 'packet')}: ${found.join(', ')}`,
    ...(otherConnections > 0 ? [counted(otherConnections, 'other TCP connection')] : []),
    ...(otherPackets > 0 ? [counted(otherPackets, 'other packet')] : []),
  ].join('; ');
}
