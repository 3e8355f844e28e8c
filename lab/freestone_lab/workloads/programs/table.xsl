<?xml version="1.0"?>
<!-- Sorts, groups by key and rewrites a table of records. -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="text"/>
  <xsl:key name="by-city" match="person" use="@city"/>
  <xsl:template match="/people">
    <xsl:for-each select="person[generate-id() = generate-id(key('by-city', @city)[1])]">
      <xsl:sort select="@city"/>
      <xsl:variable name="group" select="key('by-city', @city)"/>
      <xsl:value-of select="concat(@city, ' ', count($group), ' ', sum($group/score), '&#10;')"/>
      <xsl:for-each select="$group">
        <xsl:sort select="score" data-type="number" order="descending"/>
        <xsl:sort select="name"/>
        <xsl:if test="position() &lt; 4"><xsl:apply-templates select="."/></xsl:if>
      </xsl:for-each>
    </xsl:for-each>
  </xsl:template>
  <xsl:template match="person">
    <xsl:value-of select="concat('  ', translate(name, 'abcdef', 'ABCDEF'), ' ', score, ' ', string-length(note), '&#10;')"/>
  </xsl:template>
</xsl:stylesheet>
