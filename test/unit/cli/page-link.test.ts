import { describe, expect, it } from 'vitest';
import { pageLink } from '#daemon/cli/page-link';

describe('the link to the page', () => {
  it.each([
    ['http://127.0.0.1:7470', 'http://127.0.0.1:7470/'],
    ['http://0.0.0.0:7470', 'http://127.0.0.1:7470/'],
    ['http://[::]:7470', 'http://[::1]:7470/'],
  ])('for %s can be opened in a browser', (url, link) => {
    expect(pageLink({ url }, undefined)).toBe(link);
  });

  it('carries the token in a part that no server or log sees', () => {
    const link = new URL(pageLink({ url: 'http://127.0.0.1:7470' }, 'a&b=c#d/e'));
    expect(link.search).toBe('');
    expect(new URLSearchParams(link.hash.slice(1)).get('token')).toBe('a&b=c#d/e');
  });
});
