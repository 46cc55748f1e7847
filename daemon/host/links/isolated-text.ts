/** What devices say of addresses that an isolated network does not have. */

/** Why an address outside of an isolated network is not reached. */
export function isolatedText(address: string): string {
  return (
    `no route to ${address}: the network of these devices is isolated; ` +
    '--network host reaches other hosts and daemons'
  );
}
