/** The GID that stands for an IP address on RoCE. */
import { isIPv4, isIPv6 } from 'node:net';
import { TEXT, takes } from '#contract/verbs/arguments';
import { invalid } from '#contract/verbs/errors';
import { gidText } from '#contract/verbs/gid';

const GROUPS = 8;

const check = takes('addressGid', { address: TEXT });

/**
 * The GID of an IPv4 address, which is mapped, or of an IPv6 address, whose zone does not matter; as
 * eight groups of hex digits. EINVAL for other text.
 */
export function addressGid(address: string): string {
  check(address);
  const [text = ''] = address.split('%', 1);
  if (isIPv4(text)) return gidOf(`::ffff:${text}`);
  if (isIPv6(text)) return gidOf(text);
  throw invalid(`'${address}' is not an IP address`);
}

function gidOf(ipv6: string): string {
  const [head = '', tail] = ipv6.split('::');
  const first = groupsOf(head);
  const last = groupsOf(tail ?? '');
  const zeros = new Array<number>(GROUPS - first.length - last.length).fill(0);
  const groups = [...first, ...zeros, ...last];
  return gidText(Uint8Array.from(groups.flatMap((group) => [group >>> 8, group & 0xff])));
}

/** The last group may be the last 32 bits, as an IPv4 address. */
function groupsOf(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [Number.parseInt(group, 16)];
    const [a = 0, b = 0, c = 0, d = 0] = group.split('.').map(Number);
    return [(a << 8) | b, (c << 8) | d];
  });
}
