import { describe } from 'vitest';
import type { ProviderFixture } from './fixture.ts';
import { objectSuite } from './objects.ts';
import { transferSuite } from './transfers.ts';

/** Everything that every provider has to do alike. */
export function complianceSuite(name: string, fixture: ProviderFixture): void {
  describe(`${name}: objects`, () => objectSuite(fixture));
  describe(`${name}: transfers`, () => transferSuite(fixture));
}
