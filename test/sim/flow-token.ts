/** The token in Private Data by which a program finds the flow of a connect request. */

const TOKEN_MAGIC = 0x1da_51d;
/** Private Data that carry a token have at least this length. */
const TOKEN_BYTES = 8;

/** Private Data that identify a flow, followed by `more`. */
export function tokenData(token: number, more: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(TOKEN_BYTES + more.length);
  const fields = new DataView(bytes.buffer);
  fields.setUint32(0, TOKEN_MAGIC);
  fields.setUint32(4, token);
  bytes.set(more, TOKEN_BYTES);
  return bytes;
}

/** The token in Private Data; -1 if they carry none. */
export function tokenOf(bytes: Uint8Array): number {
  if (bytes.length < TOKEN_BYTES) return -1;
  const fields = new DataView(bytes.buffer, bytes.byteOffset);
  return fields.getUint32(0) === TOKEN_MAGIC ? fields.getUint32(4) : -1;
}
