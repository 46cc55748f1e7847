/** The message for addresses outside an isolated network. */

/** Why an address outside an isolated network cannot be reached. */
export function isolatedText(address: string): string {
  return (
    `no route to ${address}: the network of these devices is isolated; ` +
    '--network host reaches other hosts and daemons'
  );
}
