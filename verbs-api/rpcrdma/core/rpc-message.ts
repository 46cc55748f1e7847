/**
 * The headers of RPC calls and replies (RFC 5531 §9), version 2, with the credentials of AUTH_NONE
 * and AUTH_SYS (§10.1, appendix A).
 */
import { encodeText } from '#contract/protocol/ipc-value';
import { AuthFlavor, type Credential } from './credential.ts';
import { XdrError, XdrReader } from './xdr-reader.ts';
import { XdrWriter } from './xdr-writer.ts';

export const RPC_VERSION = 2;
/** Message type (RFC 5531 §9, `msg_type`). */
export const MessageType = { call: 0, reply: 1 } as const;
/** Maximum bytes of a credential or verifier (RFC 5531 §8.2). */
const AUTH_BODY_MAX_BYTES = 400;
/** Bytes of the header of a successful reply with an AUTH_NONE verifier. */
export const REPLY_HEADER_MIN_BYTES = 24;

const ReplyStatus = { accepted: 0, denied: 1 } as const;
const AcceptStatus = {
  success: 0,
  progUnavail: 1,
  progMismatch: 2,
  procUnavail: 3,
  garbageArgs: 4,
  systemErr: 5,
} as const;
const RejectStatus = { rpcMismatch: 0, authError: 1 } as const;
const MACHINE_NAME_MAX_BYTES = 255;
const GIDS_MAX = 16;

/**
 * Why authentication failed (RFC 5531 §9, `auth_stat`): the values used by a server without GSS.
 */
export const AuthStatus = {
  badCred: 1,
  rejectedCred: 2,
  badVerf: 3,
  rejectedVerf: 4,
  tooWeak: 5,
} as const;

/** A credential or verifier in wire format (`opaque_auth`). */
export interface OpaqueAuth {
  readonly flavor: number;
  /** A view of the message it was read from. */
  readonly body: Uint8Array;
}

export interface CallHeader {
  readonly xid: number;
  readonly program: number;
  readonly version: number;
  readonly procedure: number;
  readonly credential: OpaqueAuth;
  readonly verifier: OpaqueAuth;
}

/** A call of an unsupported RPC version; only its version is decoded. */
interface ForeignCall {
  readonly xid: number;
  readonly rpcVersion: number;
}

/** How a call ended (RFC 5531 §9). On success the results follow the header. */
export type ReplyOutcome =
  | { readonly status: 'success' }
  | { readonly status: 'progUnavail' }
  | { readonly status: 'progMismatch'; readonly low: number; readonly high: number }
  | { readonly status: 'procUnavail' }
  | { readonly status: 'garbageArgs' }
  | { readonly status: 'systemErr' }
  | { readonly status: 'rpcMismatch'; readonly low: number; readonly high: number }
  | { readonly status: 'authError'; readonly authStatus: number };

export interface ReplyHeader {
  readonly xid: number;
  /** For an accepted call; AUTH_NONE for a denied one. */
  readonly verifier: OpaqueAuth;
  readonly outcome: ReplyOutcome;
}

/** AUTH_NONE: an empty body. */
export const NO_AUTH: OpaqueAuth = { flavor: AuthFlavor.none, body: new Uint8Array(0) };

function readAuth(reader: XdrReader): OpaqueAuth {
  return { flavor: reader.uint32(), body: reader.opaque(AUTH_BODY_MAX_BYTES) };
}

function writeAuth(writer: XdrWriter, auth: OpaqueAuth): void {
  writer.uint32(auth.flavor);
  writer.opaque(auth.body);
}

export function writeCallHeader(writer: XdrWriter, header: CallHeader): void {
  writer.uint32(header.xid);
  writer.uint32(MessageType.call);
  writer.uint32(RPC_VERSION);
  writer.uint32(header.program);
  writer.uint32(header.version);
  writer.uint32(header.procedure);
  writeAuth(writer, header.credential);
  writeAuth(writer, header.verifier);
}

/** Reads the header of a call; the arguments follow. Throws `XdrError` if it is not a call. */
export function readCallHeader(reader: XdrReader): CallHeader | ForeignCall {
  const xid = reader.uint32();
  if (reader.uint32() !== MessageType.call) throw new XdrError('not a call');
  const rpcVersion = reader.uint32();
  if (rpcVersion !== RPC_VERSION) return { xid, rpcVersion };
  return {
    xid,
    program: reader.uint32(),
    version: reader.uint32(),
    procedure: reader.uint32(),
    credential: readAuth(reader),
    verifier: readAuth(reader),
  };
}

/** Writes the header of a reply; `verifier` is used if the call was accepted. */
export function writeReplyHeader(
  writer: XdrWriter,
  xid: number,
  outcome: ReplyOutcome,
  verifier: OpaqueAuth = NO_AUTH,
): void {
  writer.uint32(xid);
  writer.uint32(MessageType.reply);
  if (outcome.status === 'rpcMismatch' || outcome.status === 'authError') {
    writer.uint32(ReplyStatus.denied);
    if (outcome.status === 'authError') {
      writer.uint32(RejectStatus.authError);
      writer.uint32(outcome.authStatus);
    } else {
      writer.uint32(RejectStatus.rpcMismatch);
      writer.uint32(outcome.low);
      writer.uint32(outcome.high);
    }
    return;
  }
  writer.uint32(ReplyStatus.accepted);
  writeAuth(writer, verifier);
  writer.uint32(AcceptStatus[outcome.status]);
  if (outcome.status === 'progMismatch') {
    writer.uint32(outcome.low);
    writer.uint32(outcome.high);
  }
}

/** Reads the header of a reply; on success the results follow. Throws `XdrError`. */
export function readReplyHeader(reader: XdrReader): ReplyHeader {
  const xid = reader.uint32();
  if (reader.uint32() !== MessageType.reply) throw new XdrError('not a reply');
  const status = reader.uint32();
  if (status === ReplyStatus.denied) {
    return { xid, verifier: NO_AUTH, outcome: readRejection(reader) };
  }
  if (status !== ReplyStatus.accepted) throw new XdrError(`${status} is not a reply_stat`);
  const verifier = readAuth(reader);
  return { xid, verifier, outcome: readAcceptance(reader) };
}

function readRejection(reader: XdrReader): ReplyOutcome {
  const status = reader.uint32();
  switch (status) {
    case RejectStatus.rpcMismatch:
      return { status: 'rpcMismatch', low: reader.uint32(), high: reader.uint32() };
    case RejectStatus.authError:
      return { status: 'authError', authStatus: reader.uint32() };
    default:
      throw new XdrError(`${status} is not a reject_stat`);
  }
}

function readAcceptance(reader: XdrReader): ReplyOutcome {
  const status = reader.uint32();
  switch (status) {
    case AcceptStatus.success:
      return { status: 'success' };
    case AcceptStatus.progUnavail:
      return { status: 'progUnavail' };
    case AcceptStatus.progMismatch:
      return { status: 'progMismatch', low: reader.uint32(), high: reader.uint32() };
    case AcceptStatus.procUnavail:
      return { status: 'procUnavail' };
    case AcceptStatus.garbageArgs:
      return { status: 'garbageArgs' };
    case AcceptStatus.systemErr:
      return { status: 'systemErr' };
    default:
      throw new XdrError(`${status} is not an accept_stat`);
  }
}

/**
 * Encodes a credential. RangeError if the machine name of AUTH_SYS is too long or it has too many
 * groups (RFC 5531 appendix A).
 */
export function emitCredential(credential: Credential): OpaqueAuth {
  if (credential.flavor === 'none') return NO_AUTH;
  const name = encodeText(credential.machineName);
  if (name.length > MACHINE_NAME_MAX_BYTES || credential.gids.length > GIDS_MAX) {
    throw new RangeError('AUTH_SYS has a machine name of 255 bytes and 16 groups at most');
  }
  const writer = new XdrWriter();
  writer.uint32(credential.stamp);
  writer.opaque(name);
  writer.uint32(credential.uid);
  writer.uint32(credential.gid);
  writer.array(credential.gids, (groups, gid) => groups.uint32(gid));
  return { flavor: AuthFlavor.sys, body: writer.payload().stream.slice() };
}

/**
 * Decodes a credential. Returns undefined for a flavor other than AUTH_NONE and AUTH_SYS; throws
 * `XdrError` for a malformed one.
 */
export function parseCredential(auth: OpaqueAuth): Credential | undefined {
  if (auth.flavor === AuthFlavor.none) return { flavor: 'none' };
  if (auth.flavor !== AuthFlavor.sys) return undefined;
  const reader = new XdrReader(auth.body);
  const credential: Credential = {
    flavor: 'sys',
    stamp: reader.uint32(),
    machineName: reader.string(MACHINE_NAME_MAX_BYTES),
    uid: reader.uint32(),
    gid: reader.uint32(),
    gids: reader.array(GIDS_MAX, (groups) => groups.uint32()),
  };
  reader.finish();
  return credential;
}
