# Hashes of arrays, regular expressions, sorting, string building.
use strict;
use warnings;
my $seed = 2026;
sub draw { $seed = ($seed * 1103515245 + 12345) % 2147483648; return ($seed >> 8) % $_[0]; }
my (%index, @lines);
for my $i (0 .. 24999) {
    my $line = join ' ', map { sprintf '%s%d', chr(97 + draw(26)) x (1 + draw(6)), draw(400) } 1 .. 6;
    push @lines, $line;
    push @{ $index{$_} }, $i for split / /, $line;
}
my ($vowels, $swapped) = (0, 0);
for my $line (@lines) {
    $vowels++ while $line =~ /[aeiou]+\d/g;
    (my $copy = $line) =~ s/(\w+) (\w+)/$2 $1/g;
    $swapped += length $copy;
}
my @top = (sort { @{ $index{$b} } <=> @{ $index{$a} } || $a cmp $b } keys %index)[0 .. 4];
my $check = 0;
$check = ($check * 33 + $_) % 1000000007 for map { scalar @{ $index{$_} } } sort keys %index;
my %tree;
for my $line (@lines) {
    my $node = \%tree;
    $node = $node->{ substr $_, 0, 2 } //= {} for (split / /, $line)[0 .. 3];
}
printf "keys %d vowels %d swapped %d check %d top %s roots %d\n", scalar keys %index, $vowels, $swapped, $check,
    join(',', @top), scalar keys %tree;
