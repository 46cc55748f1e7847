/** Responders for tests of errors. */
import type { Region } from './consumer.ts';
import { Facing, type FacingOptions } from './facing.ts';

/** A responder, and its registered memory. */
export interface FacingMemory {
  readonly facing: Facing;
  readonly region: Region;
}

/** A responder with a receive of 64 bytes posted and 4,096 bytes registered from TO 0x1000 on. */
export async function withMemory(options: FacingOptions = {}, receives = 1): Promise<FacingMemory> {
  const facing = await Facing.responder(options);
  const region = facing.consumer.register(0x1000);
  facing.consumer.postReceive(64, receives);
  return { facing, region };
}
