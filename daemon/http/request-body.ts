/** Reads the body of a request, up to a limit. */
import type { IncomingMessage } from 'node:http';
import { HttpRefusal } from './http-refusal.ts';

/** Maximum bytes of a body: a control-plane request has a few hundred. */
const BODY_MAX_BYTES = 64 * 1024;

export async function readJsonBody(request: IncomingMessage): Promise<Record<string, unknown>> {
  const bytes = await readBody(request);
  if (bytes.length === 0) return {};
  const type = request.headers['content-type']?.split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json') {
    throw new HttpRefusal(415, 'header Content-Type', 'must be application/json');
  }
  const value = parseJson(bytes);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new HttpRefusal(400, 'body', 'must be a JSON object');
  }
  return value as Record<string, unknown>;
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new HttpRefusal(400, 'body', `invalid JSON: ${reason}`);
  }
}

function readBody(request: IncomingMessage): Promise<Uint8Array> {
  const announced = Number(request.headers['content-length'] ?? 0);
  if (announced > BODY_MAX_BYTES) return Promise.reject(tooLong());
  return new Promise((resolve, reject) => {
    const pieces: Uint8Array[] = [];
    let length = 0;
    // Not by iteration: breaking out of the loop destroys the socket, so the error response could
    // not be sent.
    request.on('data', (piece: Uint8Array) => {
      length += piece.length;
      if (length <= BODY_MAX_BYTES) {
        pieces.push(piece);
        return;
      }
      request.pause();
      reject(tooLong());
    });
    request.on('end', () => resolve(Buffer.concat(pieces, length)));
    request.on('close', () => reject(new HttpRefusal(400, 'body', 'ended early')));
    request.on('error', (error) => reject(new HttpRefusal(400, 'body', error.message)));
  });
}

function tooLong(): HttpRefusal {
  return new HttpRefusal(413, 'body', `must be at most ${BODY_MAX_BYTES} bytes`, {
    headers: { connection: 'close' },
  });
}
